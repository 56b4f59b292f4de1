"""A listing that is kept shows what a new one shows, after every commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.agents.messages import Answer
from agentrun.checkpoint.checkpoint import Running
from agentrun.checkpoint.ledger import Ledger
from agentrun.checkpoint.record import Edited, Record
from agentrun.checkpoint.summary import checkpoint_after
from agentrun.errors import CheckpointError
from agentrun.views.finding import KnownJob
from agentrun.views.kept import JOBS_KEPT, KeptListing, KeptListings, open_items
from agentrun.views.listing import Listing
from unit.made import Made, StoreKind

YES = Answer(yes=True, by="Eve")
OTHER_CONTENT = "0" * 16
KEYS = [*"abcdef"]
STATES = ("done", "failed", "skipped", "waiting", "running", "pending")


def shown(listing: Listing) -> dict[str, Any]:
    """Everything that a listing shows."""
    views = list(listing.items())
    by_key = [listing.find(key=view.key) for view in views]
    assert by_key == views and [listing.find(index=view.index) for view in views] == views
    return {
        "items": views,
        "steps": [(listing.steps(view), listing.has_steps(view)) for view in views],
        "counts": listing.counts,
        "versions": listing.versions,
        "states": {state: listing.page({state}) for state in STATES},
        "found": [listing.page(text=text) for text in ("A", "output", "draft", "no good", "zzz")],
        "run": (listing.reader.run_id, listing.is_unfinished, listing.agent, listing.usage, listing.note, len(listing)),
    }


class Script:
    """A run that is written commit by commit, and a listing of it that is kept; the clock stands still."""

    def __init__(self, made: Made) -> None:
        self.made, self.now = made, 1000.0
        self.kept = KeptListing(lambda: self.now)
        self.gens = dict.fromkeys(made.keys, 0)
        self.hashes: dict[str, str] = {}
        self.last: Listing | None = None

    def record(self, key: str, kind: Any = "done", output: Any = "an output", **fields: Any) -> Record:
        if key in self.hashes:
            fields = {"hash": self.hashes[key], **fields}
        return self.made.record(key, kind, output, gen=self.gens[key], **fields)

    def start_over(self, key: str) -> None:
        self.gens[key] += 1
        self.hashes.pop(key, None)

    def check(self, *, known: KnownJob | None = None) -> bool:
        """Compare it with a new one; whether it is still the same listing."""
        known = known or self.made.known
        with self.kept.items(known) as listing, open_items(known) as fresh:
            assert shown(listing) == shown(fresh)
            is_same, self.last = listing is self.last, listing
        return is_same

    def next_launch(self) -> None:
        self.made.checkpoint.context.launches += 1
        self.made.commit(running=[])

    def compact(self) -> None:
        made = self.made
        with made.at_work():
            ledger = Ledger()
            for ref, record in made.store.scan():
                ledger.apply(ref, record)
            made.checkpoint.seq += 1
            made.store.compact(made.checkpoint, ledger.live_refs())

    def finish(self) -> None:
        self.made.finish(number=self.made.checkpoint.context.number)

    def next_run(self) -> None:
        made = self.made
        with made.at_work(), made.store.reader() as reader:
            assert reader.summary is not None
            context, seq = made.checkpoint.context, made.checkpoint.seq
            made.checkpoint = checkpoint_after(reader.summary, number=context.number + 1)
            made.checkpoint.seq, made.checkpoint.total = seq, len(made.keys)
            new = made.checkpoint.context
            new.identity, new.launches, new.agent = context.identity, 1, "v2"
            made.store.reopen([record for _, record in reader.records()], seq=seq)
            made.commit()


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, KEYS, kind)


@pytest.fixture
def script(made: Made) -> Iterator[Script]:
    script = Script(made)
    yield script
    script.kept.close()


def test_a_run_that_goes_on_extends_the_listing_record_by_record(script: Script) -> None:
    made, record, commit = script.made, script.record, script.made.commit
    commit(record("a"))
    assert not script.check()
    steps: list[Callable[[], None]] = [
        lambda: commit(record("b", output="another output"), record("c", "skipped")),
        lambda: commit(made.failed("d")),
        lambda: commit(record("e", "step", 1, name="search", n=0, no=0)),
        lambda: commit(made.waiting("e", draft="x")),
        lambda: commit(record("e", "answer", question=1, answer=YES)),
        lambda: commit(record("e", "step", 2, name="send", n=0, no=1)),
        lambda: commit(record("e", agent="v2")),
        lambda: commit(made.failed("d", failed_launches=2)),
        lambda: script.start_over("a"),
        lambda: commit(record("a", "redo")),
        lambda: commit(record("b", output="by hand", edited=Edited("Eve", ""))),
        lambda: commit(record("a", output="the next generation")),
        lambda: commit(made.record("d", "skipped", by="Eve")),
        lambda: commit(made.record("c", output=None, agent="v3")),
        lambda: commit(),
    ]
    for number, step in enumerate(steps):
        step()
        assert script.check(), number


def test_another_launch_or_run_a_compaction_and_the_end_make_a_new_listing(script: Script) -> None:
    made, record = script.made, script.record
    steps: list[tuple[Callable[[], None], bool]] = [
        (lambda: None, False),
        (lambda: None, True),
        (lambda: made.commit(), False),
        (lambda: made.commit(record("a"), made.waiting("b")), True),
        (script.next_launch, False),
        (lambda: made.commit(record("b"), record("c")), True),
        (script.compact, False),
        (lambda: made.commit(*map(record, "def")), True),
        (script.finish, False),
        (lambda: None, True),
        (script.next_run, False),
        (lambda: script.start_over("a"), True),
        (lambda: made.commit(record("a", "redo")), True),
        (lambda: made.commit(record("a", output="new")), True),
        (script.finish, False),
        (made.store.clear, False),
    ]
    for number, (step, is_extended) in enumerate(steps):
        step()
        assert script.check() is is_extended, number


def test_items_in_flight_are_those_of_the_last_checkpoint_while_somebody_is_at_work(script: Script) -> None:
    made = script.made
    with made.at_work():
        made.commit(script.record("a"), running=[Running(index=1, key="b", slot=0), Running(index=2, key="c", slot=1)])
        script.check()
        assert script.last is not None and [one.slot for one in script.last.items({"running"})] == [0, 1]
        made.commit(script.record("b"), running=[Running(index=2, key="c", slot=1), Running(index=3, key="d", slot=0)])
        assert script.check()
        assert [one.key for one in script.last.items({"running"})] == ["c", "d"]
    # It died: nothing was written, and nobody is there.
    assert script.check()
    assert not list(script.last.items({"running"}))


def test_an_item_that_differs_from_the_source_counts_again_when_it_was_started_over(script: Script) -> None:
    script.hashes = {"a": OTHER_CONTENT, "b": OTHER_CONTENT}
    script.made.commit(script.record("a"), script.record("b", "step", 1, name="x", n=0, no=0), script.record("c"))
    script.check()
    assert script.last is not None and [one.key for one in script.last.items() if one.changed] == ["a"]
    script.start_over("a")
    script.made.commit(script.record("a", "step", 1, name="x", n=0, no=0))
    assert script.check()
    script.made.commit(script.record("a", output="new"))
    assert script.check()
    # Its launch began before it was changed.
    script.made.commit(script.record("b", "step", 2, name="y", n=0, no=1))
    assert not script.check()


def test_a_record_of_an_item_that_is_not_listed_asks_the_source_again(script: Script) -> None:
    script.made.commit(script.record("a"))
    script.check()
    script.made.items.write_text("new\na\nb\n")
    assert script.last is not None and [one.key for one in script.last.items()] == KEYS
    script.made.commit(script.made.record("new"))
    assert not script.check()
    assert [one.key for one in script.last.items()] == ["new", "a", "b"]


def test_the_source_is_asked_again_when_that_is_due(script: Script) -> None:
    script.made.commit(script.record("a"))
    script.check()
    script.made.items.write_text("a\nnew\n")

    def keys() -> list[str]:
        with script.kept.items(script.made.known) as listing:
            return [one.key for one in listing.items()]

    script.now += 9.9
    assert keys() == KEYS
    script.now += 0.2
    assert keys() == ["a", "new"]


def test_what_takes_long_to_list_is_listed_more_rarely(made: Made) -> None:
    made.commit(made.record("a"))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 3.0
        return now

    kept = KeptListing(clock)
    for _ in range(2):
        # Made in 3 s, at 6; then each look takes 3 s, and it is due at 66.
        with kept.items(made.known) as first:
            pass
        looks = 0
        while True:
            with kept.items(made.known) as listing:
                if listing is not first:
                    break
            looks += 1
        assert looks in (18, 19)
    kept.close()


def test_a_run_that_ended_is_not_listed_again_only_because_time_passes(script: Script) -> None:
    script.made.commit(*map(script.record, KEYS))
    script.finish()
    script.check()
    script.now += 10_000
    assert script.check()


def test_records_of_a_run_that_ended_may_be_removed(tmp_path: Path) -> None:
    script = Script(Made(tmp_path, KEYS))
    script.made.commit(*map(script.record, KEYS))
    script.finish()
    script.check()
    (journal,) = script.made.folder.glob("runs/*.jsonl")
    journal.unlink()
    assert not script.check()
    script.kept.close()


def test_another_description_of_the_job_makes_a_new_listing(script: Script) -> None:
    script.made.commit(script.record("b"))
    script.check()
    records_alone = KnownJob("made", script.made.store)
    assert not script.check(known=records_alone) and len(script.last or "") == 1
    assert script.check(known=records_alone)
    script.made.commit(script.record("a"), script.made.failed("e"))
    assert not script.check(known=records_alone), "of records alone only a new listing knows the order"
    assert not script.check() and len(script.last or "") == len(KEYS)


def test_items_on_record_that_are_in_flight_go_with_their_runner(script: Script) -> None:
    records_alone = KnownJob("made", script.made.store)
    with script.made.at_work():
        script.made.commit(script.record("a"), running=[Running(index=1, key="b", slot=0)])
        script.check(known=records_alone)
        assert script.check(known=records_alone)
    assert not script.check(known=records_alone)


def test_a_job_with_a_carry_is_listed_anew_when_anything_changed(tmp_path: Path, kind: StoreKind) -> None:
    script = Script(Made(tmp_path, [*"abc"], kind, carry=True))
    script.made.commit(script.record("a", after=0, carry=1))
    script.check()
    assert script.check()
    script.made.commit(script.record("b", after=1, carry=2))
    assert not script.check()
    script.kept.close()


def test_a_source_that_cannot_be_read_is_warned_of_at_each_look(script: Script) -> None:
    script.made.commit(script.record("a"))
    script.made.items.unlink()
    told: list[str] = []
    for _ in range(2):
        with script.kept.items(script.made.known, warn=told.append) as listing:
            assert [one.key for one in listing.items()] == ["a"]
    assert len(told) == 2 and "using only what is on record" in told[0]
    script.made.items.write_text("a\nb\n")
    script.now += 11
    with script.kept.items(script.made.known, warn=told.append) as listing:
        assert len(listing) == 2
    assert len(told) == 2


def test_a_state_that_cannot_be_read_is_an_error_and_nothing_is_shown(tmp_path: Path) -> None:
    made = Made(tmp_path, KEYS)
    script = Script(made)
    made.commit(script.record("a"))
    script.check()
    text = (made.folder / "state.json").read_text()
    (made.folder / "state.json").write_text(text.replace('"total": 6', '"total": 7'))
    with pytest.raises(CheckpointError), script.kept.items(made.known):
        pass
    (made.folder / "state.json").write_text(text)
    assert not script.check()
    script.kept.close()


OPS = st.sampled_from(
    ["done", "done", "failed", "skipped", "waiting", "answer", "step", "redo", "edit", "launch", "compact", "end"]
)


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(["folder", "memory"]),
    changed=st.sets(st.sampled_from(KEYS), max_size=2),
    commits=st.lists(st.lists(st.tuples(OPS, st.sampled_from(KEYS)), max_size=3), max_size=12),
)
def test_whatever_happens_it_shows_what_a_new_one_shows(
    kind: StoreKind, changed: set[str], commits: list[list[tuple[str, str]]]
) -> None:
    with TemporaryDirectory() as folder:
        script = Script(Made(Path(folder), KEYS, kind))
        script.hashes = dict.fromkeys(changed, OTHER_CONTENT)
        script.made.commit(*map(script.record, sorted(changed)))
        script.check()
        for commit in commits:
            records = [_act(script, op, key) for op, key in commit]
            script.made.commit(*(record for record in records if record is not None))
            script.check()
        script.kept.close()


def _act(script: Script, op: str, key: str) -> Record | None:
    record, made = script.record, script.made
    match op:
        case "failed" | "skipped":
            return record(key, op, error=made.failed(key).error)
        case "waiting":
            return record(key, op, question=made.waiting(key, draft="x").question)
        case "answer":
            return record(key, op, question=1, answer=YES)
        case "step":
            return record(key, op, 1, name="x", n=0, no=0)
        case "redo":
            script.start_over(key)
            return record(key, op)
        case "edit":
            return record(key, output="by hand", edited=Edited("Eve", ""))
        case "launch":
            script.next_launch()
        case "compact":
            script.compact()
        case "end":
            script.finish()
            script.check()
            script.next_run()
        case _:
            return record(key, agent=key)
    return None


def test_others_wait_until_the_block_ends(made: Made) -> None:
    made.commit(made.record("a"))
    kept = KeptListings(lambda: 0.0)
    events: list[str] = []
    has_begun = threading.Event()

    def look() -> None:
        has_begun.set()
        with kept.items(made.known) as listing:
            events.append(f"sees {listing.counts['done']}")

    with kept.items(made.known) as listing:
        other = threading.Thread(target=look)
        other.start()
        has_begun.wait()
        made.commit(made.record("b"))
        assert listing.counts["done"] == 1, "a block sees one moment"
        events.append("ends")
    other.join()
    assert events == ["ends", "sees 2"]
    kept.close()


@contextmanager
def watched(known: KnownJob) -> Iterator[list[int]]:
    """Counts the readers that are open."""
    is_open = [0]
    make = known.store.reader

    def reader(**options: Any) -> Any:
        found = make(**options)
        close = found.close
        is_open[0] += 1

        def closing() -> None:
            is_open[0] -= 1
            close()

        found.close = closing  # type: ignore[method-assign]
        return found

    known.store.reader = reader  # type: ignore[method-assign]
    yield is_open


def test_only_the_last_jobs_are_kept_and_closing_closes_all(made: Made) -> None:
    made.commit(made.record("a"))
    kept = KeptListings(lambda: 0.0)
    with watched(made.known) as is_open:
        for number in range(JOBS_KEPT + 5):
            made.commit(made.record("b", output=number))
            for name in (f"job {number}", "job 0"):
                with kept.items(KnownJob(name, made.store, made.job)) as listing:
                    assert len(listing) == len(KEYS)
            assert is_open[0] <= JOBS_KEPT
        assert is_open[0] == JOBS_KEPT
        kept.close()
        assert is_open[0] == 0

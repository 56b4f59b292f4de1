"""A job in a SQLite file, with a run that does everything once: what must be there after each of its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from agentrun.store.holder import Holder
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import Home
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.port import Store
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, keys, record, reopen, skip, summary

STEPS = {
    "nothing": "",
    "1": "a",
    "2": "abc",
    "3": "abcd",
    "4": "acd",
    "5": "acde",
    "finished": "",
    "6": "acdef",
}
"""The commits of a run, its end, and the first commit of the next one, with the keys of the records after each."""
ENDED = "acde"
LEASE_SECONDS = 0.2
STALE_JOURNAL, STALE_STOP, STALE_SPOOL = "00000000-0badbad0", "post/stop-0123456789abcdef", "side/old.spool"
"""What launches before left behind."""


class UnsureJob:
    """One job, which several processes open: each has a connection and a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._places: list[SqlitePlace] = []
        home = self.home()
        home.stage(STALE_JOURNAL, 0, [b"stale"])
        home.put(STALE_STOP, [b""])
        home.put(STALE_SPOOL, [b"stale"])
        self.store(home, "person").post([skip("d")])

    def close(self) -> None:
        for place in self._places:
            place.close()

    def home(self) -> Home:
        self._places.append(SqlitePlace(self._folder / "jobs.db"))
        return self._places[-1].home("triage")

    def store(self, home: Home, name: str, *, patience_seconds: float = 0.0) -> KeyedStore:
        (self._folder / name).mkdir(exist_ok=True)
        timing = Timing(lease_seconds=LEASE_SECONDS, patience_seconds=patience_seconds, beats=False)
        return KeyedStore(home, "triage", self._folder / name / ".agentrun" / "triage", timing=timing)

    def take_over(self) -> None:
        """A runner on another machine takes the job, whoever has it."""
        home = self.home()
        home.take(home.head(), OTHER, 3600)

    @contextmanager
    def next_launch(self) -> Iterator[KeyedStore]:
        """By a process that knows nothing of the one before; it waits for the lease to run out."""
        store = self.store(self.home(), "next")
        lease = store.lock(wait_seconds=60)
        try:
            yield store
        finally:
            lease.release()


OTHER = msgspec.json.encode(Holder(7, "larch", "2026-05-04T22:03:11.000Z", mark="other", boot="another"))


def standing(store: Store) -> str:
    """The step that the job has reached; everything of it is whole."""
    found = store.load().checkpoint
    step = str(found.seq) if found is not None else "finished" if store.summaries() else "nothing"
    assert "".join(keys(store)) == STEPS[step]
    if step in ("finished", "6"):
        assert [one.run_id for one in store.summaries()] == [RUN]
        with store.reader(run_id=RUN) as reader:
            assert "".join(one.key for _, one in reader.records()) == ENDED
    else:
        assert store.summaries() == []
    return step


def carry_on(store: Store, acknowledged: Callable[[str], object] = lambda step: None) -> None:
    """From wherever the job stands to the end of the steps."""
    found = store.load().checkpoint
    seq = found.seq if found is not None else 0

    def commit(number: int, names: str) -> None:
        if seq < number:
            store.commit(checkpoint(number), [record(name) for name in names])
            acknowledged(str(number))

    if not store.summaries():
        store.keep("job.json", [b"{}"])
        commit(1, "a")
        commit(2, "bc")
        posted = {one.name for one in store.inbox()}
        if seq < 3:
            assert store.claim(sorted(posted)) == posted
        commit(3, "d")
        store.drop(posted)
        if seq < 4:
            store.compact(checkpoint(4), [ref for ref, one in store.scan() if one.key != "b"])
            acknowledged("4")
        commit(5, "e")
        store.keep("items-1.spool", iter([b"item\n"]))
        store.finish(summary(spool="items-1.spool"))
        acknowledged("finished")
    if store.load().checkpoint is None:
        reopen(store)
        store.commit(checkpoint(6, run_id=LATER_RUN), [record("f")])
        acknowledged("6")
    store.prune()


def check_end(job: UnsureJob) -> None:
    """Everything is there, once, and nothing else: the next launch removes what this one kept for its readers."""
    with job.next_launch() as store:
        assert standing(store) == "6"
        assert store.inbox() == []
        store.prune()
        (ended,) = store.home.ended()
        state = store.home.head().state
        assert state is not None
        assert len(store.home.journals() - {ended.journal}) == 1
        assert all(journal.encode() in state for journal in store.home.journals() - {ended.journal})
        assert store.home.names() == ["side/items-1.spool", "side/job.json"]
        assert [b"".join(store.fetch(name) or ()) for name in ("items-1.spool", "job.json")] == [b"item\n", b"{}"]

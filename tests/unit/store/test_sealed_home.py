"""A sealed job in a SQLite file: what can be read there, and what is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from agentrun.checkpoint.sealing import Keyring, MissingKeyError, key_id
from agentrun.errors import CheckpointError, StoreError, UsageError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import PIECE_BYTES, Commit, Home
from agentrun.store.keyed.sealed import SealedHome, SealedPlace
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.testing.examples import LATER_RUN, RUN, answer, checkpoint, keys, record
from needs import require_module
from unit.store.sealed_jobs import ONE, SECRETS, TWO, Bench

require_module("cryptography", extra="sealed")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def flipped(value: bytes) -> bytes:
    """With a bit changed in its last third, behind the key's id."""
    at = len(value) * 2 // 3
    return value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :]


# ---- what can be read


@pytest.mark.parametrize("is_sealed", [True, False])
def test_nothing_of_the_users_can_be_found_in_the_file(bench: Bench, is_sealed: bool) -> None:
    if not is_sealed:
        bench.ring = None
    bench.fill()
    # Also what is not in the file itself yet.
    stored = b"".join(path.read_bytes() for path in bench.folder.glob("jobs.db*"))
    assert [secret.encode() in stored for secret in SECRETS] == [not is_sealed] * len(SECRETS)


def test_what_a_list_of_jobs_needs_can_be_read(bench: Bench) -> None:
    bench.fill()
    ((state,),) = bench.query("select state from job")
    found = orjson.loads(bytes(state))
    assert (found["job"], found["run_id"], found["seq"], found["total"]) == ("triage", LATER_RUN, 2, 9)
    assert (found["key"], found["counts"]) == (key_id(ONE), {})
    assert SealedPlace(SqlitePlace(bench.file), None).names() == ["triage"]


# ---- what is noticed


def test_a_job_that_nobody_changed_is_read(bench: Bench) -> None:
    bench.fill()
    bench.use()
    assert keys(bench.store()) == [] and bench.store().load().checkpoint is not None


RUNNING = "job = 'triage' and ref = 0 and journal <> (select journal from ended where job = 'triage')"


@pytest.mark.parametrize(
    ("table", "column", "where"),
    [
        ("job", "state", "job = 'triage'"),
        ("record", "line", RUNNING),
        ("ended", "summary", "job = 'triage'"),
        ("side", "value", "name = 'side/job.json' and piece = 0"),
        ("side", "value", "name like 'post/%' and piece = 0"),
    ],
)
@pytest.mark.parametrize("damage", [flipped, lambda value: value[:-3], lambda value: b'{"clear":"text"}'])
def test_what_was_changed_is_noticed(
    bench: Bench, table: str, column: str, where: str, damage: Callable[[bytes], bytes]
) -> None:
    bench.fill()
    bench.change(table, column, damage, where)
    with pytest.raises(CheckpointError) as caught:
        bench.use()
    assert caught.value.exit_code == 65 and caught.value.message.startswith("triage in sqlite:///")


@pytest.mark.parametrize("field", ["job", "run_id", "seq", "total", "done", "usage", "updated_at", "version"])
def test_a_figure_of_the_state_that_was_edited_is_noticed(bench: Bench, field: str) -> None:
    bench.fill()

    def edit(state: bytes) -> bytes:
        edited = re.sub(rb'"%b": .*,' % field.encode(), b'"%b": 0,' % field.encode(), state)
        assert edited != state
        return edited

    bench.change("job", "state", edit)
    with pytest.raises(CheckpointError, match=r"triage in .*: the state: is not as it was sealed"):
        bench.use()


def test_two_records_that_were_swapped_are_noticed(bench: Bench) -> None:
    bench.fill()
    bench.swap("record", "line", bench.rowids("record")[-2:])
    with pytest.raises(CheckpointError, match="record 1: is not as it was sealed"):
        bench.use()


def test_a_record_of_another_run_or_job_is_noticed(bench: Bench) -> None:
    bench.fill()
    bench.fill("archive")
    ended, running, other, _ = bench.rowids("record", "ref = 0")
    for source, target, job in ((ended, running, "triage"), (running, other, "archive")):
        ((line,),) = bench.query("select line from record where rowid = ?", source)
        bench.query("update record set line = ? where rowid = ?", line, target)
        with pytest.raises(CheckpointError, match=rf"{job} in .*: record 0: is not as it was sealed"):
            bench.use(job)


def test_a_record_that_was_removed_from_the_end_is_noticed(bench: Bench) -> None:
    bench.fill()
    bench.query("delete from record where rowid = ?", bench.rowids("record")[-1])
    with pytest.raises(CheckpointError, match="record 2 is gone"):
        bench.use()


def test_a_state_or_summary_of_another_job_or_run_is_noticed(bench: Bench) -> None:
    bench.fill()
    bench.fill("archive")
    bench.swap("job", "state", bench.rowids("job"))
    with pytest.raises(CheckpointError, match="the state: is not as it was sealed"):
        bench.use()
    bench.swap("job", "state", bench.rowids("job"))
    bench.use()
    bench.query("update ended set run = 'another' where job = 'triage'")
    with pytest.raises(CheckpointError, match="the summary of run another: is not as it was sealed"):
        bench.use()
    bench.query("update ended set run = ? where job = 'triage'", RUN)
    bench.swap("ended", "summary", bench.rowids("ended"))
    with pytest.raises(CheckpointError, match=f"the summary of run {RUN}: is not as it was sealed"):
        bench.use()


def with_large_files(bench: Bench) -> None:
    bench.fill()
    for name in ("items-1.spool", "items-2.spool"):
        bench.home().put(f"side/{name}", iter([b"x" * PIECE_BYTES, b"end"]))
    bench.use()


def test_pieces_of_a_side_file_that_were_swapped_dropped_or_moved_are_noticed(bench: Bench) -> None:
    with_large_files(bench)
    first, second = (bench.rowids("side", f"name = 'side/items-{n}.spool' and piece >= 0") for n in (1, 2))
    assert len(first) == len(second) == 2
    for rowids in (first, [first[0], second[0]], [first[1], second[1]]):
        bench.swap("side", "value", rowids)
        with pytest.raises(CheckpointError, match=r"side/items-1\.spool:? is not"):
            bench.use()
        bench.swap("side", "value", rowids)
    bench.use()
    bench.query("delete from side where rowid = ?", first[-1])
    with pytest.raises(CheckpointError, match=r"side/items-1\.spool: is not as it was sealed"):
        bench.use()


def test_a_side_file_under_another_name_is_noticed(bench: Bench) -> None:
    bench.fill()
    bench.query("update side set name = 'side/moved.json' where name = 'side/job.json'")
    with pytest.raises(CheckpointError, match=r"side/moved\.json: is not as it was sealed"):
        bench.use()


# ---- keys


def all_reads(store: KeyedStore) -> list[Callable[[], object]]:
    return [
        store.load,
        store.reader,
        store.summaries,
        lambda: list(store.fetch("job.json") or ()),
    ]


def test_a_wrong_key_is_a_wrong_command_line(bench: Bench) -> None:
    bench.fill()
    bench.ring = Keyring([TWO])
    for read in all_reads(bench.store()):
        with pytest.raises(
            UsageError, match=f"key {key_id(ONE)}, but the key given is {key_id(TWO)}; .*agentrun clear"
        ) as caught:
            read()
        assert caught.value.exit_code == 2


def test_without_a_key_nothing_sealed_is_taken_for_damage_or_for_nothing(bench: Bench) -> None:
    bench.fill()
    bench.ring = None
    for read in all_reads(bench.store()):
        with pytest.raises(UsageError, match=f"is sealed with key {key_id(ONE)}, but no key is set; .*AGENTRUN_KEY"):
            read()


def test_without_the_key_a_runner_can_be_seen_and_asked_to_stop(bench: Bench) -> None:
    bench.fill()
    lease = (working := bench.store()).lock(wait_seconds=0)
    for ring in (None, Keyring([TWO])):
        bench.ring = ring
        store = bench.store()
        holder = store.holder()
        assert holder is not None and holder.mark == lease.mark
        store.home.put_new(f"post/stop-{lease.mark}{'-now' if ring else ''}", b"")
    working.inbox()
    assert lease.stops_asked == 2
    lease.release()


def test_a_second_key_opens_what_was_sealed_and_seals_from_now_on(bench: Bench) -> None:
    bench.fill()
    bench.ring = Keyring([TWO, ONE])
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    store.load()
    store.commit(checkpoint(3, run_id=LATER_RUN), [record("d")])
    lease.release()
    bench.use()
    bench.ring = Keyring([TWO])
    # The state is sealed with the new key by now, and the rest with the old one.
    assert LATER_RUN.encode() in (bench.home().head().state or b"")
    with pytest.raises(MissingKeyError):
        bench.use()


def test_a_job_in_clear_is_refused_by_those_who_have_a_key(bench: Bench) -> None:
    bench.ring = None
    bench.fill()
    bench.ring = Keyring([ONE])
    for read in all_reads(bench.store()):
        with pytest.raises(CheckpointError, match=r"is not sealed, but a key is set; .*agentrun rekey triage --seal"):
            read()


# ---- the way out


@pytest.mark.parametrize("where", ["job", "ended", "both"])
def test_what_cannot_be_opened_is_set_aside_as_it_is_stored(bench: Bench, where: str) -> None:
    bench.fill()
    ((state,),) = bench.query("select state from job")
    if where != "ended":
        bench.change("job", "state", flipped)
        ((state,),) = bench.query("select state from job")
    if where != "job":
        bench.change("ended", "summary", flipped)
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    with pytest.raises(CheckpointError):
        store.load()
    store.set_aside()
    assert [one.run_id for one in store.summaries()] == ([RUN] if where == "job" else [])
    assert store.load().checkpoint is None
    store.commit(checkpoint(1, run_id="20270101T000000-00000000000"), [record("new")])
    kept = {name.partition("-set-aside")[2]: store.home.get(name) for name in store.home.names("aside/")}
    assert b"".join(kept[".state"] or ()) == bytes(state)
    journals = [b"".join(kept[name] or ()) for name in kept if name.endswith(".jsonl")]
    # A record a line, although sealed ones hold any bytes.
    assert sorted(text.count(b"\n") for text in journals) == ([3] if where == "job" else [1, 3])
    assert (f".{RUN}.summary" in kept) == (where != "job")
    lease.release()
    assert [one.key for _, one in bench.store().reader().records()] == ["new"]
    bench.use()


@pytest.mark.parametrize("ring", [Keyring([ONE]), Keyring([TWO])])
def test_a_message_that_cannot_be_opened_ends_no_run(bench: Bench, ring: Keyring) -> None:
    bench.fill()
    bench.ring = ring
    bench.store().post([answer("x")])
    if ring.first == key_id(ONE):
        bench.change("side", "value", flipped, f"name = '{bench.home().names('post/')[-1]}' and piece = 0")
    bench.ring = Keyring([ONE])
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    store.load()
    good, bad = store.inbox()
    assert good.message is not None and bad.message is None
    assert "is not as it was sealed" in bad.problem or f"sealed with key {key_id(TWO)}" in bad.problem
    store.drop([bad.name])
    assert [one.name for one in store.inbox()] == [good.name]
    assert store.home.names("rejected/") == [f"rejected/{bad.name}"]
    lease.release()
    bench.use()


# ---- commits that nobody is sure of


class Unsure(WrappedHome):
    """Does what it is told, and once says that it does not know; or does not do it."""

    def __init__(self, inner: Home, *, is_done: bool) -> None:
        super().__init__(inner)
        self.is_done = is_done
        self.is_armed = True
        self.sent: list[Commit] = []

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        self.sent.append(commit)
        if self.is_done or not self.is_armed:
            self.inner.commit(epoch, commit, ttl_seconds)
        if self.is_armed:
            self.is_armed = False
            raise StoreError("no answer")


@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_that_nobody_is_sure_of_is_known_again(bench: Bench, is_done: bool) -> None:
    unsure = Unsure(SqlitePlace(bench.file).home("triage"), is_done=is_done)
    ring = Keyring([ONE])
    folder = bench.folder / ".agentrun" / "triage"
    store = KeyedStore(SealedHome(unsure, ring, "triage"), "triage", folder, timing=Timing(beats=False))
    lease = store.lock(wait_seconds=0)
    store.load()
    store.commit(checkpoint(1), [record("a")])
    store.commit(checkpoint(2), [record("b")])
    assert [one.seq for one in unsure.sent] == ([1, 2] if is_done else [1, 1, 2])
    assert len({one.state for one in unsure.sent}) == len(unsure.sent)
    assert keys(store) == ["a", "b"]
    lease.release()

"""New keys for a job, sealing and unsealing it: everything is written again, and no crash leaves it unreadable."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrun.checkpoint.sealing import Keyring, MissingKeyError
from agentrun.errors import AgentrunError, CheckpointError, LostError
from agentrun.store.keyed.home import PIECE_BYTES, Commit, EndedRun, Home
from agentrun.store.keyed.inbox import KeyedInbox
from agentrun.store.keyed.rekeying import Change, Rekeyed, rekey
from agentrun.store.keyed.sealed import SealedHome
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.testing.examples import LATER_RUN, RUN, answer, checkpoint, record
from needs import require_module
from unit.store.sealed_jobs import ONE, SECRETS, TWO, Bench

require_module("cryptography", extra="sealed")
OLD, NEW, BOTH = Keyring([ONE]), Keyring([TWO]), Keyring([TWO, ONE])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


class Killed(BaseException):
    """The process ends here."""


class Dying(WrappedHome):
    """Dies at the n-th write: before it, or after it was done."""

    def __init__(self, inner: Home, *, at: int, is_done: bool) -> None:
        super().__init__(inner)
        self.left, self.is_done = at, is_done
        self.calls: list[str] = []

    @property
    def raw(self) -> Home:
        return self

    def _call(self, name: str, write: Callable[[], Any]) -> Any:
        self.calls.append(name)
        self.left -= 1
        if self.left >= 0:
            return write()
        if self.is_done:
            write()
        raise Killed

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        self._call("stage", lambda: self.inner.stage(journal, first_ref, lines))

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        self._call("replace", lambda: self.inner.replace(epoch, commit, ended))

    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        self._call("forget", lambda: self.inner.forget(epoch, runs=runs, journals=journals))

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        self._call("put", lambda: self.inner.put(name, pieces, epoch=epoch))

    def put_new(self, name: str, text: bytes) -> bool:
        return bool(self._call("put_new", lambda: self.inner.put_new(name, text)))

    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        self._call("drop", lambda: self.inner.drop(names, epoch=epoch))


def as_it_is(home: Home) -> Home:
    return home


def change(
    bench: Bench, how: Change = "rekey", *, ring: Keyring = BOTH, around: Callable[[Home], Home] = as_it_is
) -> Rekeyed:
    """As the command does it: with the lease, and without loading the job."""
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    try:
        return rekey(around(store.home.raw), "triage", lease.epoch, ring=ring, folder=store.folder, change=how)
    finally:
        lease.release()


def contents(bench: Bench, ring: Keyring | None) -> dict[str, Any]:
    """Everything of the job, read by a launch with these keys."""
    bench.ring = ring
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    try:
        found, runs = store.load().checkpoint, {}
        assert found is not None
        for run in store.summaries():
            with store.reader(run_id=run.run_id) as reader:
                runs[run.run_id] = [one for _, one in reader.records()], run.identity
        sides = {name: b"".join(store.home.get(name) or ()) for name in store.home.names("side/")}
        lines, posted = [one for _, one in store.scan()], [one.message for one in store.inbox()]
    finally:
        lease.release()
    return {"state": (found.seq, found.context), "runs": runs, "lines": lines, "sides": sides, "posted": posted}


@pytest.fixture
def filled(bench: Bench) -> Bench:
    bench.fill()
    bench.home().put("side/items-1.spool", iter([b"x" * PIECE_BYTES, b"end"]))
    return bench


def test_everything_is_under_the_new_key_afterwards(filled: Bench) -> None:
    before = contents(filled, OLD)
    assert change(filled) == Rekeyed(runs=2, records=4, files=3)
    assert contents(filled, NEW) == before
    assert len(before["lines"]) == 3 and set(before["runs"]) == {RUN} and len(before["posted"]) == 1
    filled.ring = OLD
    for read in (filled.store().load, filled.store().summaries, lambda: list(filled.home().get("side/job.json") or ())):
        with pytest.raises(MissingKeyError):
            read()
    assert len(filled.home().journals()) == 2


def test_objects_are_rekeyed_too(tmp_path: Path) -> None:
    require_module("obstore", extra="objects")
    from obstore.store import MemoryStore

    from agentrun.store.homes.objects.place import ObjectsPlace

    objects = MemoryStore()
    bench = Bench(tmp_path, lambda: ObjectsPlace(objects, "jobs", shown="s3://bucket/jobs", margin_seconds=0))
    bench.fill()
    bench.home().put("side/items-1.spool", iter([b"x" * PIECE_BYTES, b"end"]))
    before = contents(bench, OLD)
    assert change(bench) == Rekeyed(runs=2, records=4, files=3)
    assert contents(bench, NEW) == before


def test_a_rekeyed_job_runs_on(filled: Bench) -> None:
    change(filled)
    filled.ring = NEW
    store = filled.store()
    lease = store.lock(wait_seconds=0)
    store.load()
    store.commit(checkpoint(3, run_id=LATER_RUN), [record("d")])
    assert [one.key for _, one in store.scan()] == [SECRETS[0], "b", "c", "d"]
    lease.release()


def test_a_job_in_clear_is_sealed_and_unsealed_again(bench: Bench) -> None:
    bench.ring = None
    bench.fill()
    before = contents(bench, None)
    with pytest.raises(CheckpointError, match="is not sealed"):
        change(bench)
    assert contents(bench, None) == before
    change(bench, "seal", ring=NEW)
    assert contents(bench, NEW) == before
    change(bench, "unseal", ring=NEW)
    assert contents(bench, None) == before


def test_a_job_without_an_unfinished_run_or_without_any_is_rekeyed(bench: Bench) -> None:
    store = bench.store()
    lease = store.lock(wait_seconds=0)
    store.load()
    lease.release()
    assert change(bench) == Rekeyed(runs=0, records=0, files=0)
    bench.fill()
    bench.home().clear(bench.home().head().epoch)
    bench.home().put("side/job.json", iter([b"{}"]))
    assert change(bench) == Rekeyed(runs=0, records=0, files=1)


def test_a_run_whose_records_are_no_longer_kept_stays_known(bench: Bench) -> None:
    bench.fill()
    (ended,) = bench.home().ended()
    bench.home().forget(bench.home().head().epoch, journals=[ended.journal])
    assert change(bench).records == 3
    bench.ring = NEW
    assert [one.run_id for one in bench.store().summaries()] == [RUN]


def test_a_key_that_is_not_given_changes_nothing(filled: Bench) -> None:
    before = contents(filled, OLD)
    with pytest.raises(MissingKeyError):
        change(filled, ring=NEW)
    assert contents(filled, OLD) == before


def test_a_record_that_was_changed_stops_it_before_anything_has_changed(bench: Bench) -> None:
    bench.fill()
    bench.swap("record", "line", bench.rowids("record")[-2:])
    with pytest.raises(CheckpointError, match="is not as it was sealed"):
        change(bench)
    bench.ring = OLD
    assert bench.store().load().checkpoint is not None


def test_a_side_file_that_was_changed_is_left_and_told(bench: Bench) -> None:
    bench.fill()
    bench.query("update side set name = 'side/moved.json' where name = 'side/job.json'")
    assert change(bench).left == ("side/moved.json",)


def test_who_has_lost_the_lease_changes_nothing(filled: Bench) -> None:
    before = contents(filled, OLD)
    store = filled.store()
    store.lock(wait_seconds=0).release()
    with pytest.raises(LostError):
        rekey(store.home, "triage", store.home.head().epoch - 1, ring=BOTH, folder=store.folder)
    assert contents(filled, OLD) == before


# ---- messages, which people post and withdraw without the lease


class Meanwhile(WrappedHome):
    """A person withdraws the message after it was read, and before it is written again."""

    is_withdrawn: bool | None = None

    @property
    def raw(self) -> Home:
        return self

    def get(self, name: str) -> Iterator[bytes] | None:
        pieces = self.inner.get(name)
        if not name.startswith("post/") or self.is_withdrawn is not None or pieces is None:
            return pieces
        whole = list(pieces)
        self.is_withdrawn = KeyedInbox(SealedHome(self.inner, OLD, "triage")).withdraw(name.removeprefix("post/"))
        return iter(whole)


def test_a_message_that_is_withdrawn_meanwhile_does_not_come_back(bench: Bench) -> None:
    bench.fill()
    homes: list[Meanwhile] = []

    def around(home: Home) -> Home:
        homes.append(Meanwhile(home))
        return homes[-1]

    change(bench, around=around)
    assert homes[0].is_withdrawn is True
    assert bench.home().names("post/") == [] == bench.home().names("fate/")


def test_a_message_can_be_withdrawn_afterwards_unless_a_runner_had_claimed_it(bench: Bench) -> None:
    bench.fill()
    bench.store().post([answer("claimed")])
    free, claimed = (one.name for one in bench.store().inbox())
    assert bench.store().claim([claimed]) == {claimed}
    change(bench)
    bench.ring = NEW
    assert bench.home().names("fate/") == [f"fate/{claimed}"]
    assert bench.store().claim([claimed]) == {claimed}
    assert [bench.store().withdraw(name) for name in (free, claimed)] == [True, False]


# ---- crashes


def crash(bench: Bench, how: Change, ring: Keyring, *, at: int, is_done: bool) -> list[str] | None:
    """Die at the n-th write; the calls until then, None if it came to its end before."""
    homes: list[Dying] = []

    def around(home: Home) -> Home:
        homes.append(Dying(home, at=at, is_done=is_done))
        return homes[-1]

    try:
        change(bench, how, ring=ring, around=around)
    except Killed:
        return homes[0].calls
    return None


def filled_once(folder: Path, ring: Keyring | None) -> Callable[[int], Bench]:
    """Makes copies of one job, each in a folder of its own."""
    bench = Bench(folder / "filled")
    bench.folder.mkdir()
    bench.ring = ring
    bench.fill()
    bench.store().post([answer("x")])
    bench.store().claim([bench.store().inbox()[0].name])
    bench.close()
    return lambda number: Bench(shutil.copytree(bench.folder, folder / str(number)))


WRITES = {"stage", "replace", "put", "put_new", "drop", "forget"}


@pytest.mark.parametrize("is_done", [False, True])
def test_a_crash_at_any_write_leaves_a_job_that_both_keys_read(tmp_path: Path, is_done: bool) -> None:
    deaths: list[str] = []
    copy = filled_once(tmp_path, OLD)
    for at in range(100):
        bench = copy(at)
        before = contents(bench, OLD)
        calls = crash(bench, "rekey", BOTH, at=at, is_done=is_done)
        assert contents(bench, BOTH) == before == contents(bench, Keyring([ONE, TWO]))
        if calls is not None:
            deaths.append(calls[-1])
            change(bench)
        assert contents(bench, NEW) == before
        assert len(bench.home().journals()) == 2
        bench.close()
        if calls is None:
            break
    assert set(deaths) == WRITES


@pytest.mark.parametrize(("how", "first", "then"), [("seal", None, NEW), ("unseal", NEW, None)])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_crash_while_sealing_or_unsealing_is_repaired_by_the_same_command(
    tmp_path: Path, how: Change, first: Keyring | None, then: Keyring | None, is_done: bool
) -> None:
    deaths: list[str] = []
    copy = filled_once(tmp_path, first)
    for at in range(100):
        bench = copy(at)
        before = contents(bench, first)
        calls = crash(bench, how, NEW, at=at, is_done=is_done)
        # Perhaps half of it is sealed: it is refused, or read as it was, and never as something else.
        for ring in (None, NEW):
            try:
                assert contents(bench, ring)["lines"] == before["lines"]
            except AgentrunError as error:
                assert error.exit_code in (2, 65)
        if calls is not None:
            deaths.append(calls[-1])
            change(bench, how, ring=NEW)
        assert contents(bench, then) == before
        bench.close()
        if calls is None:
            break
    assert set(deaths) == WRITES

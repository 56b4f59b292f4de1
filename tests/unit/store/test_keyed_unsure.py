"""A place that does not answer: a change was made or was not, and nobody knows. Each change of a run in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError, BrokenStoreError, BusyError, LostError, StoreError, UsageError
from agentrun.store.keyed.home import Commit, Head, Home
from agentrun.store.keyed.store import KeyedStore
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, record, summary
from agentrun.testing.fences import stored_runs
from agentrun.testing.homes import lease_of
from crash.workload import scratch
from stores.faulty_home import HOWS, FaultyHome, How
from stores.unsure_job import OTHER, STEPS, UnsureJob, carry_on, check_end, standing

CHANGES = {"take", "commit", "stage", "finish", "forget", "put", "put_new", "drop", "give"}
"""All that the steps do to the home."""
BREAKING = ("commit", "stage", "finish", "forget", "put side/", "drop side/")
"""The calls after which nothing is accepted any more if they fail: messages are not part of a run."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: what is tested is the order of calls, not the drive."""
    with scratch() as path:
        yield path


def each_fault(folder: Path, how: How) -> Iterator[tuple[UnsureJob, FaultyHome]]:
    """A new job for each change that can fail, until none of it has failed."""
    struck: set[str] = set()
    for number in count(1):
        job = UnsureJob(folder / f"{how}-{number}")
        home = FaultyHome(job.home(), at=number, how=how)
        yield job, home
        job.close()
        if not home.struck:
            assert struck == CHANGES
            return
        struck.add(home.struck.partition(" ")[0])


@contextmanager
def going_on(home: FaultyHome) -> Iterator[None]:
    try:
        yield
    except AgentrunError as error:
        pytest.fail(f"after {home.struck}, of which nobody knew whether it was done, the run did not go on: {error}")


@pytest.mark.parametrize("how", HOWS)
def test_with_patience_the_run_goes_on_and_nothing_is_lost_or_doubled(folder: Path, how: How) -> None:
    for job, home in each_fault(folder, how):
        store, acknowledged = job.store(home, "first", patience_seconds=60), list[str]()
        lease = store.lock()
        assert lease.left_mark == ""
        with going_on(home):
            carry_on(store, acknowledged.append)
        # What the network held back until now changes nothing any more.
        home.deliver()
        assert acknowledged == list(STEPS)[1:], home.struck
        assert standing(store) == "6", home.struck
        lease.release()
        check_end(job)


def test_with_patience_a_look_that_was_not_answered_is_made_again(folder: Path) -> None:
    for number in count(1):
        job = UnsureJob(folder / str(number))
        home = FaultyHome(job.home(), at=0, kind="look")
        store = job.store(home, "first", patience_seconds=60)
        lease = store.lock()
        home.at = len(home.calls) + number
        with going_on(home):
            carry_on(store)
        assert standing(store) == "6", home.struck
        assert store.size() == store.size([ref for ref, _ in store.scan()]), home.struck
        lease.release()
        check_end(job)
        job.close()
        if not home.struck:
            break


def test_who_only_looks_is_told_at_once_that_the_place_does_not_answer(folder: Path) -> None:
    job = UnsureJob(folder / "job")
    for look in (KeyedStore.load, KeyedStore.summaries, KeyedStore.inbox, KeyedStore.reader, KeyedStore.holder):
        with pytest.raises(StoreError):
            look(job.store(FaultyHome(job.home(), at=1, kind="look"), "person", patience_seconds=3600))
    job.close()


@pytest.mark.parametrize("how", HOWS)
def test_without_patience_the_next_launch_has_everything_that_was_acknowledged(folder: Path, how: How) -> None:
    for job, home in each_fault(folder, how):
        store, acknowledged = job.store(home, "first"), ["nothing"]
        try:
            lease = store.lock()
            try:
                carry_on(store, acknowledged.append)
                assert home.struck in ("", "give")
            finally:
                if home.struck.startswith(BREAKING):
                    refuses_everything(store)
                lease.release()
        except StoreError as error:
            assert error.exit_code == 74
        with job.next_launch() as store:
            home.deliver()
            reached, known = list(STEPS).index(standing(store)), list(STEPS).index(acknowledged[-1])
            is_step = home.struck in ("commit", "finish")
            assert reached in ([known, known + 1] if is_step else [known]), home.struck
            if how in ("before", "after"):
                assert reached == known + (is_step and how == "after"), home.struck
            carry_on(store)
        check_end(job)


def refuses_everything(store: KeyedStore) -> None:
    calls: list[Callable[[], object]] = [
        *(partial(store.commit, checkpoint(seq), [record("late")]) for seq in range(8)),
        *(partial(store.compact, checkpoint(seq), []) for seq in range(8)),
        lambda: store.finish(summary()),
        lambda: store.keep("job.json", [b"late"]),
        lambda: store.forget("job.json"),
        store.prune,
        store.set_aside,
        store.clear,
    ]
    for call in calls:
        try:
            call()
        except AgentrunError as error:
            assert isinstance(error, StoreError)
        else:
            pytest.fail(f"a store whose last write failed accepted {call}")


@pytest.mark.parametrize("patience_seconds", [60.0, 0.0])
@pytest.mark.parametrize("how", HOWS)
def test_if_another_takes_the_job_meanwhile_it_is_lost_and_nothing_is_changed_any_more(
    folder: Path, how: How, patience_seconds: float
) -> None:
    for job, home in each_fault(folder, how):
        before: list[object] = []

        def take_over(job: UnsureJob = job, before: list[object] = before) -> None:
            job.take_over()
            before.append(of_runs(job.home()))

        home.on_fault = take_over
        store = job.store(home, "first", patience_seconds=patience_seconds)
        try:
            lease = store.lock(wait_seconds=0)
            try:
                carry_on(store)
                if home.struck:
                    # What failed was no part of the run: the next change is.
                    store.commit(checkpoint(7, run_id=LATER_RUN), [record("late")])
            finally:
                lease.release()
        except (LostError, BusyError) as error:
            assert error.exit_code == 75
            assert isinstance(error, BusyError) == (home.struck == "take")
        except StoreError:
            assert not patience_seconds
        else:
            assert home.struck in ("", "give")
        if home.struck:
            home.deliver()
            now = job.home()
            assert [of_runs(now)] == before, home.struck
            assert lease_of(now)[1:] == (OTHER, True)


def test_an_unsure_commit_is_not_taken_for_the_one_of_another_with_the_same_seq(folder: Path) -> None:
    job = UnsureJob(folder / "job")
    other = job.home()

    def commit_the_same() -> None:
        epoch = other.take(other.head(), OTHER, 3600)
        other.commit(epoch, Commit(1, b"another's", RUN, "00000002-1b3e28c4", 0, is_first=True), 3600)

    store = job.store(FaultyHome(job.home(), at=2, on_fault=commit_the_same), "first", patience_seconds=60)
    lease = store.lock()
    store.load()
    with pytest.raises(LostError, match="pid 7 on larch"):
        store.commit(checkpoint(1), [record("late")])
    assert lease.is_lost and lease.lost is not None
    lease.release()
    assert (other.head().state, other.head().holder) == (b"another's", OTHER)
    job.close()


class Unsynced(WrappedHome):
    """Whose commits and side files arrive, and fail to reach the disk."""

    def __init__(self, inner: Home) -> None:
        super().__init__(inner)
        self.calls: list[str] = []

    def head(self, *, exact: bool = False) -> Head:
        self.calls.append("head")
        return super().head(exact=exact)

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        self.calls.append("commit")
        super().commit(epoch, commit, ttl_seconds)
        raise BrokenStoreError("the disk failed")

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        self.calls.append("put")
        super().put(name, pieces, epoch=epoch)
        raise BrokenStoreError("the disk failed")


@pytest.mark.parametrize("change", ["commit", "put"])
def test_a_write_that_failed_for_good_is_neither_asked_about_nor_tried_again(folder: Path, change: str) -> None:
    job = UnsureJob(folder / "job")
    home = Unsynced(job.home())
    store = job.store(home, "first", patience_seconds=2)
    lease = store.lock()
    store.load()
    home.calls.clear()
    with pytest.raises(BrokenStoreError, match="the disk failed"):
        store.commit(checkpoint(1), [record("a")]) if change == "commit" else store.keep("job.json", [b"{}"])
    assert home.calls == [change]
    refuses_everything(store)
    assert home.calls == [change]
    lease.release()
    job.close()


def of_runs(home: Home) -> object:
    """Everything but messages, which are not the runner's alone."""
    found = stored_runs(home)
    return {**found, "sides": {name: text for name, text in found["sides"].items() if name.startswith("side/")}}


# ---- outages


class Failing(WrappedHome):
    """Every call that changes or reads the head or the side files raises `error`, while there is one."""

    def __init__(self, inner: Home) -> None:
        super().__init__(inner)
        self.error: Callable[[], AgentrunError] | None = None
        self.tries = 0
        self.answers_after = 0

    def _fail(self) -> None:
        self.tries += 1
        if self.error is not None and not 0 < self.answers_after < self.tries:
            raise self.error()

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        self._fail()
        self.inner.commit(epoch, commit, ttl_seconds)

    def head(self, *, exact: bool = False) -> Head:
        self._fail()
        return self.inner.head(exact=exact)

    def names(self, prefix: str = "") -> list[str]:
        self._fail()
        return self.inner.names(prefix)


@contextmanager
def failing_store(folder: Path, *, patience_seconds: float) -> Iterator[tuple[KeyedStore, Failing]]:
    """A store in the middle of its run."""
    job = UnsureJob(folder / "job")
    home = Failing(job.home())
    store = job.store(home, "first", patience_seconds=patience_seconds)
    lease = store.lock()
    store.load()
    store.commit(checkpoint(1), [record("a")])
    yield store, home
    home.error = None
    lease.release()
    job.close()


def silent() -> AgentrunError:
    return StoreError("the place: does not answer")


def refusing() -> AgentrunError:
    return UsageError("the place: refuses the password")


@pytest.mark.parametrize("error", [silent, refusing])
def test_patience_counts_from_the_first_error_of_an_outage_whoever_meets_it(
    folder: Path, error: Callable[[], AgentrunError]
) -> None:
    with failing_store(folder, patience_seconds=0.2) as (store, home):
        home.error = error
        with pytest.raises(StoreError, match="what was committed before is kept") as caught:
            store.commit(checkpoint(2), [record("b")])
        assert caught.value.exit_code == 74 and store.trouble == error().message
        home.tries = 0
        with pytest.raises(StoreError):
            store.inbox()
        assert home.tries == 1
        home.error = None
        assert len(store.inbox()) == 1 and store.trouble == ""


@pytest.mark.parametrize("error", [silent, refusing])
def test_a_run_continues_when_the_place_answers_again(folder: Path, error: Callable[[], AgentrunError]) -> None:
    with failing_store(folder, patience_seconds=60) as (store, home):
        home.error, home.tries, home.answers_after = error, 0, 5
        store.commit(checkpoint(2), [record("b")])
        assert store.trouble == "" and [one.key for _, one in store.scan()] == ["a", "b"]


def test_a_place_that_answers_looks_but_no_write_is_given_up(folder: Path) -> None:
    class ReadOnly(Failing):
        def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
            if self.error is not None:
                raise self.error()
            self.inner.commit(epoch, commit, ttl_seconds)

        def _fail(self) -> None:
            """Looks are answered."""

    job = UnsureJob(folder / "job")
    home = ReadOnly(job.home())
    store = job.store(home, "first", patience_seconds=0.2)
    lease = store.lock()
    store.load()
    home.error = silent
    with pytest.raises(StoreError, match="given up"):
        store.commit(checkpoint(1), [record("a")])
    lease.release()
    job.close()

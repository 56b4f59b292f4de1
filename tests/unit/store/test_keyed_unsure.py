"""A place that does not answer: a change was made or was not, and nobody knows. Each change of a run in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError, BusyError, LostError, StoreError
from agentrun.store.keyed.home import Commit, Home
from agentrun.store.keyed.store import KeyedStore
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


def of_runs(home: Home) -> object:
    """Everything but messages, which are not the runner's alone."""
    found = stored_runs(home)
    return {**found, "sides": {name: text for name, text in found["sides"].items() if name.startswith("side/")}}

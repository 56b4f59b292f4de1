"""The lease of a runner: its heartbeat, its end, and how it is taken when nobody knows whether it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.errors import BusyError, StoreError
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.home import Head, Home
from agentrun.store.keyed.lease import KeyedLease
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.testing.homes import LONG, lease_of
from stores.faulty_home import HOWS, FaultyHome, How
from stores.unsure_job import OTHER
from waiting import eventually


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[SqlitePlace]]:
    opened = [SqlitePlace(tmp_path / "jobs.db") for _ in range(2)]
    yield opened
    for place in opened:
        place.close()


@pytest.fixture
def home(places: list[SqlitePlace]) -> Home:
    return places[0].home("triage")


@pytest.fixture
def other(places: list[SqlitePlace]) -> Home:
    """As another process has it."""
    return places[1].home("triage")


def open_store(home: Home, tmp_path: Path, **timing: float | bool) -> KeyedStore:
    values = {"lease_seconds": LONG, "patience_seconds": 0.0, "beats": False, **timing}
    return KeyedStore(home, "triage", tmp_path / ".agentrun" / "triage", timing=Timing(**values))  # type: ignore[arg-type]


class Watched(WrappedHome):
    """Notes what is done to the lease, with the epoch, and fails with `errors` first."""

    def __init__(self, inner: Home, errors: int = 0) -> None:
        super().__init__(inner)
        self.errors = errors
        self.calls: list[tuple[str, int]] = []
        self.may_beat = threading.Event()
        self.may_beat.set()

    def beat(self, epoch: int, ttl_seconds: float) -> None:
        self.calls.append(("beat", epoch))
        assert self.may_beat.wait(60)
        if self.errors:
            self.errors -= 1
            raise StoreError("the connection was cut")
        super().beat(epoch, ttl_seconds)
        self.calls.append(("renewed", epoch))

    def give(self, epoch: int) -> None:
        self.calls.append(("give", epoch))
        super().give(epoch)

    def count(self, name: str) -> int:
        return sum(call == (name, 1) for call in self.calls)


def lock(home: Home, tmp_path: Path, *, lease_seconds: float) -> KeyedLease:
    return open_store(home, tmp_path, lease_seconds=lease_seconds, beats=True).lock(wait_seconds=0)


def take_free(store: KeyedStore) -> KeyedLease:
    """The lease of a job that nobody has."""
    try:
        return store.lock(wait_seconds=0)
    except BusyError as error:
        pytest.fail(f"nobody has it: {error}")


def test_a_lease_is_renewed_by_a_heartbeat_for_as_long_as_it_is_held(home: Home, other: Home, tmp_path: Path) -> None:
    watched = Watched(home)
    lease = lock(watched, tmp_path, lease_seconds=0.06)
    eventually(lambda: watched.count("renewed") >= 3, "the heart beats")
    eventually(lambda: not lease.is_lost and other.head().fresh, "the lease is renewed, here and there")
    lease.release()
    assert {epoch for _, epoch in watched.calls} == {1}
    assert (watched.calls[-1], lease_of(other)) == (("give", 1), (1, None, False))


def test_the_heart_goes_on_when_the_place_does_not_answer_for_a_while(home: Home, tmp_path: Path) -> None:
    watched = Watched(home, errors=3)
    lease = lock(watched, tmp_path, lease_seconds=0.06)
    eventually(lambda: watched.count("renewed") >= 1, "the heart beats again")
    assert watched.count("beat") > 3 and lease.lost is None
    lease.release()


def test_the_heartbeat_finds_out_that_the_job_is_anothers_and_gives_nothing_back(
    home: Home, other: Home, tmp_path: Path
) -> None:
    watched = Watched(home)
    lease = lock(watched, tmp_path, lease_seconds=0.06)
    other.take(other.head(), OTHER, LONG)
    eventually(lambda: lease.lost is not None, "the heartbeat is refused")
    assert lease.is_lost
    lease.release()
    assert (watched.count("give"), lease_of(other)) == (0, (2, OTHER, True))


def test_no_heartbeat_comes_after_the_lease_was_given_back(home: Home, tmp_path: Path) -> None:
    watched = Watched(home)
    watched.may_beat.clear()
    lease = lock(watched, tmp_path, lease_seconds=0.06)
    eventually(lambda: watched.count("beat"), "a heartbeat is under way")
    releasing = threading.Thread(target=lease.release)
    releasing.start()
    # It waits for that one, which would otherwise renew what was given back.
    eventually(lambda: lease.fd is None, "the release has begun")
    assert watched.count("give") == 0
    watched.may_beat.set()
    releasing.join(60)
    assert watched.calls == [("beat", 1), ("renewed", 1), ("give", 1)]
    eventually(lambda: "agentrun-lease" not in [one.name for one in threading.enumerate()], "the heart stops")
    assert watched.calls[-1] == ("give", 1)


@pytest.mark.parametrize("how", HOWS)
def test_a_lease_whose_taking_was_not_answered_is_found_to_be_ours_or_taken_again(
    home: Home, other: Home, tmp_path: Path, how: How
) -> None:
    other.take(other.head(), b"not a holder", LONG)
    other.give(1)
    lease = take_free(open_store(FaultyHome(home, at=1, how=how), tmp_path, patience_seconds=60.0))
    assert (lease.epoch, other.head().epoch, lease.left_mark) == (2, 2, "")
    assert not lease.is_lost
    lease.release()
    assert lease_of(other) == (2, None, False)


def test_without_patience_a_lease_whose_taking_was_not_answered_is_an_error_and_the_folder_is_free(
    home: Home, other: Home, tmp_path: Path
) -> None:
    with pytest.raises(StoreError):
        open_store(FaultyHome(home, at=1), tmp_path).lock(wait_seconds=0)
    open_store(home, tmp_path).lock(wait_seconds=0).release()


def test_a_place_that_does_not_answer_at_all_is_said_at_once_at_the_start(home: Home, tmp_path: Path) -> None:
    store = open_store(FaultyHome(home, at=1, kind="look"), tmp_path, patience_seconds=3600.0)
    with pytest.raises(StoreError):
        store.lock(wait_seconds=0)


class SlowClock(WrappedHome):
    """To whom a lease looks fresh for too long, unless the place's own clock is asked."""

    def head(self, *, exact: bool = False) -> Head:
        found = super().head(exact=exact)
        return found if exact else replace(found, fresh=found.holder is not None)


def test_before_a_job_is_busy_the_clock_of_the_place_is_asked(home: Home, other: Home, tmp_path: Path) -> None:
    other.take(other.head(), OTHER, LONG)
    with pytest.raises(BusyError, match="pid 7 on larch"):
        open_store(SlowClock(home), tmp_path).lock(wait_seconds=0)
    other.beat(1, 0.0)
    eventually(lambda: not other.head().fresh, "the lease runs out")
    lease = take_free(open_store(SlowClock(home), tmp_path))
    assert lease.epoch == 2
    lease.release()


def test_of_two_launches_in_one_process_each_knows_its_own_lease(home: Home, other: Home, tmp_path: Path) -> None:
    store = open_store(home, tmp_path)
    first = store.lock(wait_seconds=0)
    again = KeyedStore(other, "triage", tmp_path / "elsewhere" / "triage", timing=Timing(beats=False))
    with pytest.raises(BusyError):
        again.lock(wait_seconds=0)
    first.release()
    second = again.lock(wait_seconds=0)
    first.release()
    assert (second.epoch, lease_of(home)[::2]) == (2, (2, True))
    second.release()
    third = store.lock(wait_seconds=0)
    assert third.epoch == 3 and len({first.mark, second.mark, third.mark}) == 3
    third.release()


def test_a_runner_that_was_paused_past_its_lease_still_has_the_job_in_its_own_folder(
    home: Home, other: Home, tmp_path: Path
) -> None:
    lease = open_store(home, tmp_path, lease_seconds=0.01).lock(wait_seconds=0)
    eventually(lambda: not home.head(exact=True).fresh, "the lease runs out")
    beside = open_store(other, tmp_path)
    with pytest.raises(BusyError):
        beside.lock(wait_seconds=0)
    holder = beside.holder()
    with beside.reader() as reader:
        assert holder is not None and reader.holder() == holder and holder.mark == lease.mark
    # Another folder does not share the lock: from there the job can be taken over.
    assert open_store(other, tmp_path / "elsewhere").holder() is None
    lease.release()
    assert beside.holder() is None

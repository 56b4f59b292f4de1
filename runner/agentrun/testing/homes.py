"""The contract of a home, of its lease: who has the job, and for how long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from agentrun.errors import LostError
from agentrun.store.keyed.home import Commit, EndedRun, Head, Home
from agentrun.testing.examples import LATER_RUN, RUN

JOURNAL, OTHER_JOURNAL = "00000001-0a2f19f3", "00000002-1b3e28c4"
LONG, SHORT = 3600.0, 0.1
"""Seconds of a lease: one that lasts, and one that runs out while a test waits for it."""
_PATIENCE_SECONDS, _PAUSE_SECONDS = float(os.environ.get("AGENTRUN_TEST_PATIENCE_SECONDS", "120")), 0.01
NOBODYS = 99
"""An epoch that nobody has."""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition. The limit only guards against hangs."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"this did not happen within {_PATIENCE_SECONDS:g} s: {what}"
        time.sleep(_PAUSE_SECONDS)


def state(seq: int, run_id: str = RUN) -> bytes:
    """What a home keeps as the state: text that only its writer understands."""
    return f'{{"run": "{run_id}",\n "seq": {seq}, "é": "\u2028"}}\n'.encode()


def lines(*names: str) -> list[bytes]:
    return [f'{{"key":"{name}","é":"\u2028"}}'.encode() for name in names]


def commit(seq: int, *, first_ref: int = 0, adds: str = "", run_id: str = RUN, journal: str = JOURNAL) -> Commit:
    """The commit `seq` of a run, with a record for each letter of `adds`. That of seq 1 is the first."""
    return Commit(
        seq=seq,
        state=state(seq, run_id),
        run_id=run_id,
        journal=journal,
        first_ref=first_ref,
        lines=lines(*adds),
        is_first=seq == 1,
    )


def ended_run(run_id: str = RUN, journal: str = JOURNAL, summary: bytes = b'{"status":"finished"}') -> EndedRun:
    return EndedRun(run_id, journal, summary)


def stored(home: Home, journal: str = JOURNAL) -> list[tuple[int, bytes]]:
    """Everything that a journal has."""
    return list(home.scan(journal, 0, 1 << 62))


def text_of(home: Home, name: str) -> bytes | None:
    pieces = home.get(name)
    return b"".join(pieces) if pieces is not None else None


def all_of(home: Home) -> dict[str, Any]:
    """Everything that a job has but its lease."""
    head = home.head()
    return {
        "head": (head.seq, head.state),
        "ended": sorted((one.run_id, one.journal, one.summary) for one in home.ended()),
        "records": {journal: stored(home, journal) for journal in sorted(home.journals())},
        "sides": {name: text_of(home, name) for name in home.names()},
    }


def fill(home: Home) -> int:
    """Take the lease, and put something of everything there; return the epoch."""
    epoch = home.take(home.head(), b'{"pid":1}', LONG)
    home.commit(epoch, commit(1, adds="ab"), LONG)
    home.finish(epoch, ended_run())
    home.commit(epoch, commit(1, run_id=LATER_RUN, journal=OTHER_JOURNAL, adds="x"), LONG)
    home.put("side/job.json", [b"{", b"}"], epoch=epoch)
    return epoch


def lease_of(home: Home, *, exact: bool = False) -> tuple[int, bytes | None, bool]:
    """Epoch, holder, and whether the lease has not run out."""
    head = home.head(exact=exact)
    return head.epoch, head.holder, head.fresh


class OnOneHome:
    """What the parts of the contract have in common."""

    margin_seconds = 0.0
    """How much longer than it was asked for a lease may be held for fresh, by the place's own clock."""

    def make_home(self, tmp_path: Path) -> Home:
        """Open the job under test as another process would: the same job at each call within a test, by an object of
        its own. The job is unknown at first."""
        raise NotImplementedError("say how to open the home of one job: def make_home(self, tmp_path): ...")

    def let_pass(self) -> None:
        """Let a short lease run out if nobody renewed it: that it does not is what is tested."""
        time.sleep(SHORT + self.margin_seconds)

    @pytest.fixture
    def home(self, tmp_path: Path) -> Home:
        return self.make_home(tmp_path)

    @pytest.fixture
    def other(self, tmp_path: Path) -> Home:
        """The same job, as another process has it."""
        return self.make_home(tmp_path)


def run_out(home: Home) -> Head:
    """Wait until the lease has run out by the place's own clock; return the head."""
    wait_until(lambda: not home.head(exact=True).fresh, "the lease runs out")
    return home.head()


class HomeLeaseContract(OnOneHome):
    def test_of_a_job_that_is_not_known_there_is_nothing_however_often_one_looks(self, home: Home, other: Home) -> None:
        for _ in range(2):
            assert lease_of(home) == (0, None, False) == lease_of(home, exact=True)
            assert (home.head().seq, home.head().state) == (0, None)
            assert (home.ended(), home.journals(), home.names(), home.names("side/")) == ([], set(), [], [])
            assert (home.get("side/job.json"), stored(home), home.size(JOURNAL)) == (None, [], 0)
            assert home.read(JOURNAL, [0, 7]) == [None, None]
            home = other

    def test_who_takes_the_lease_holds_it_for_all_to_see(self, home: Home, other: Home) -> None:
        assert home.take(home.head(), b'{"pid":1}', LONG) == 1
        for look in (home, other):
            assert lease_of(look) == (1, b'{"pid":1}', True) == lease_of(look, exact=True)
            assert (look.head().seq, look.head().state) == (0, None)

    def test_of_two_who_saw_the_same_head_one_takes_the_lease(self, home: Home, other: Home) -> None:
        seen = other.head()
        home.take(home.head(), b"first", LONG)
        with pytest.raises(LostError):
            other.take(seen, b"second", LONG)
        # Nor if it was given back and taken again meanwhile, by the same holder.
        seen = other.head()
        home.give(1)
        home.take(home.head(), b"first", LONG)
        with pytest.raises(LostError):
            other.take(seen, b"second", LONG)
        assert lease_of(other) == (2, b"first", True)

    def test_of_six_who_take_it_at_once_one_succeeds(self, tmp_path: Path) -> None:
        homes = [self.make_home(tmp_path) for _ in range(6)]
        at_once = Barrier(len(homes))

        def take(number: int) -> int | None:
            seen = homes[number].head()
            at_once.wait()
            try:
                return homes[number].take(seen, b"%d" % number, LONG)
            except LostError:
                return None

        with ThreadPoolExecutor(len(homes)) as threads:
            taken = list(threads.map(take, range(len(homes))))
        assert sorted(filter(None, taken)) == [1]
        assert lease_of(homes[0]) == (1, b"%d" % taken.index(1), True)

    def test_a_lease_that_has_not_run_out_is_taken_only_from_the_holder_that_was_seen(
        self, home: Home, other: Home
    ) -> None:
        home.take(home.head(), b"first", LONG)
        for seen in (Head(1), Head(1, b"another", True), Head(1, b"", True), Head(0, b"first", True), Head(2)):
            with pytest.raises(LostError):
                other.take(seen, b"second", LONG)
        assert lease_of(home) == (1, b"first", True)
        # Whom the caller knows to be dead.
        assert other.take(other.head(), b"second", LONG) == 2
        assert lease_of(home) == (2, b"second", True)

    def test_a_lease_runs_out_by_itself_and_may_then_be_taken(self, home: Home, other: Home) -> None:
        home.take(home.head(), b"first", SHORT)
        seen = run_out(other)
        assert lease_of(other) == (1, b"first", False)
        assert other.take(seen, b"second", LONG) == 2
        assert lease_of(home) == (2, b"second", True)

    def test_a_lease_that_is_given_back_has_no_holder_and_may_be_taken_at_once(self, home: Home, other: Home) -> None:
        home.take(home.head(), b"first", LONG)
        home.give(1)
        home.give(1)
        assert lease_of(other) == (1, None, False)
        assert other.take(other.head(), b"second", LONG) == 2

    def test_a_beat_renews_the_lease(self, home: Home, other: Home) -> None:
        home.take(home.head(), b"first", SHORT)
        home.beat(1, LONG)
        self.let_pass()
        assert other.head(exact=True).fresh
        home.beat(1, SHORT)
        assert run_out(other).epoch == 1

    def test_a_beat_that_comes_after_the_lease_was_given_back_takes_nothing(self, home: Home, other: Home) -> None:
        home.take(home.head(), b"first", LONG)
        home.give(1)
        try:
            home.beat(1, LONG)
        except LostError:
            pass  # just as well
        assert lease_of(other) == (1, None, False)
        assert other.take(other.head(), b"second", LONG) == 2

    def test_who_has_lost_the_lease_can_neither_renew_it_nor_give_it_back(self, home: Home, other: Home) -> None:
        home.take(home.head(), b"first", LONG)
        other.take(other.head(), b"second", SHORT)
        with pytest.raises(LostError):
            home.beat(1, LONG)
        run_out(home)
        other.beat(2, LONG)
        for _ in range(2):
            with pytest.raises(LostError):
                home.give(1)
            assert lease_of(other) == (2, b"second", True)

    def test_the_epoch_only_grows_whatever_becomes_of_the_job(self, home: Home, other: Home) -> None:
        epoch = fill(home)
        home.finish(epoch, ended_run(LATER_RUN, OTHER_JOURNAL))
        assert other.head().epoch == epoch
        home.replace(epoch, None, [])
        home.clear(epoch)
        assert lease_of(other)[::2] == (epoch, True)
        home.give(epoch)
        assert other.take(other.head(), b"second", LONG) == epoch + 1

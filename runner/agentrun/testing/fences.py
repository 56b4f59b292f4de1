"""The fencing tests: what a runner that lost its job can no longer do, on a home of one's own.

The runners of a test have folders of their own: on one machine the lock in the folder would keep them apart already.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest

from agentrun.errors import BusyError, LostError
from agentrun.store.holder import Holder
from agentrun.store.keyed.home import Head, Home
from agentrun.store.keyed.lease import KeyedLease
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, end_run, keys, record, reopen, skip, summary
from agentrun.testing.homes import LONG, SHORT, OnOneHome, all_of, lease_of, wait_until

LATE: dict[str, Callable[[KeyedStore], object]] = {
    "commit": lambda store: store.commit(checkpoint(3), [record("late")]),
    "commit without records": lambda store: store.commit(checkpoint(3)),
    "compact": lambda store: store.compact(checkpoint(3), [0]),
    "finish": lambda store: store.finish(summary()),
    "abandon": lambda store: store.finish(summary(status="abandoned")),
    "keep": lambda store: store.keep("job.json", [b"late"]),
    "keep from a pipe": lambda store: store.keep("items-2.spool", iter([b"late"])),
    "forget": lambda store: store.forget("job.json"),
    "prune": lambda store: store.prune(),
    "set aside": lambda store: store.set_aside(),
    "clear": lambda store: store.clear(),
    "load": lambda store: store.load(),
    "drop": lambda store: store.drop([one.name for one in store.inbox()]),
}
"""What a runner may be about to do when it is stopped for longer than its lease lasts."""

_HOLDER = """
import sys, msgspec
from agentrun.store.holder import Holder
print(msgspec.json.encode(Holder.of_this_process(mark="left")).decode(), flush=True)
sys.stdin.read()
"""


class Runners:
    """Runners of one job, each with a folder and a connection of its own."""

    def __init__(self, open_home: Callable[[], Home], folder: Path) -> None:
        self._open = open_home
        self._folder = folder
        self._leases: list[KeyedLease] = []

    def store(
        self, name: str, *, lease_seconds: float = LONG, wrap: Callable[[Home], Home] = lambda home: home
    ) -> KeyedStore:
        timing = Timing(lease_seconds=lease_seconds, patience_seconds=0, beats=False)
        (self._folder / name).mkdir(exist_ok=True)
        return KeyedStore(wrap(self._open()), "triage", self._folder / name / ".agentrun" / "triage", timing=timing)

    def start(
        self, name: str, *, lease_seconds: float = LONG, wait_seconds: float = 60.0
    ) -> tuple[KeyedStore, KeyedLease]:
        """A runner that has the job, with its run loaded."""
        store = self.store(name, lease_seconds=lease_seconds)
        try:
            self._leases.append(store.lock(wait_seconds=wait_seconds))
        except BusyError as error:
            pytest.fail(f"the job should be free: {error.message}")
        store.load()
        return store, self._leases[-1]

    def end(self) -> None:
        for lease in self._leases:
            lease.release()


def stored_runs(home: Home) -> dict[str, Any]:
    """What a late write could change: journals that nothing names are no part of it."""
    found, head = all_of(home), home.head()
    named = [one.journal.encode() for one in home.ended()]
    records = {
        name: lines
        for name, lines in found["records"].items()
        if name.encode() in named or name.encode() in (head.state or b"")
    }
    return {**found, "records": records}


class FenceContract(OnOneHome):
    """What keeps two runners apart, on a home. Subclass it and implement `make_home`."""

    @pytest.fixture
    def runners(self, tmp_path: Path) -> Iterator[Runners]:
        runners = Runners(lambda: self.make_home(tmp_path), tmp_path)
        yield runners
        runners.end()

    # ---- late writes

    def overtake(self, runners: Runners) -> tuple[KeyedStore, KeyedLease, KeyedStore, KeyedLease]:
        """A runner in the middle of its run, and another that took the job when the first one's lease ran out."""
        late, lost = runners.start("late", lease_seconds=SHORT)
        end_run(late, "20260401T220311-0a2f19f3a1c", "xyz")
        late.keep("job.json", [b"{}"])
        late.keep("items-1.spool", [b"kept"])
        for seq, name in enumerate("ab", 1):
            late.commit(checkpoint(seq), [record(name)])
        runners.store("person").post([skip("b")])
        return late, lost, *runners.start("next")

    @pytest.mark.parametrize("what", LATE)
    def test_who_was_stopped_past_the_lease_changes_nothing_any_more(
        self, runners: Runners, home: Home, what: str
    ) -> None:
        late, lost, store, lease = self.overtake(runners)
        before = stored_runs(home)
        with pytest.raises(LostError) as caught:
            LATE[what](late)
        assert caught.value.exit_code == 75
        assert "another runner has taken this job over" in caught.value.message
        assert stored_runs(home) == before
        # What it says from now on is the same, and its end takes nothing from the other.
        if what != "load":
            with pytest.raises(LostError):
                late.commit(checkpoint(3), [record("late")])
        assert lost.is_lost and not lease.is_lost
        lost.release()
        assert lease_of(home) == (lease.epoch, home.head().holder, True)
        assert store.commit(checkpoint(3), [record("c")]) == [2]
        assert keys(store) == ["a", "b", "c"]

    def test_a_commit_that_another_made_with_the_same_seq_is_not_taken_for_ours(self, runners: Runners) -> None:
        late, _, store, _ = self.overtake(runners)
        store.commit(checkpoint(3), [record("c")])
        with pytest.raises(LostError):
            late.commit(checkpoint(3), [record("late")])
        assert keys(store) == ["a", "b", "c"]

    def test_a_new_run_of_who_lost_the_job_is_not_begun(self, runners: Runners, home: Home) -> None:
        late, _ = runners.start("late", lease_seconds=SHORT)
        end_run(late)
        reopen(late)
        store, _ = runners.start("next")
        for _ in range(2):
            before = stored_runs(home)
            with pytest.raises(LostError):
                late.commit(checkpoint(4, run_id="20260506T220311-0a2f19f3a1c"), [record("late")])
            assert stored_runs(home) == before
            if store.load().checkpoint is None:
                reopen(store)
                store.commit(checkpoint(4, run_id=LATER_RUN), [record("d")])
        assert keys(store) == ["a", "b", "c", "d"]

    def test_what_who_lost_the_job_staged_is_removed_and_nobody_reads_it(self, runners: Runners, home: Home) -> None:
        late, _ = runners.start("late", lease_seconds=SHORT)
        end_run(late)
        before = home.journals()
        reopen(late)
        left = home.journals() - before
        assert len(left) == 1
        store, _ = runners.start("next")
        store.prune()
        assert home.journals() == before
        home.stage(left.pop(), 1, [b"late"])
        with store.reader() as reader:
            assert (reader.run_id, [one.key for _, one in reader.records()]) == (RUN, ["a", "b", "c"])

    def test_a_stop_that_was_asked_for_is_not_removed_by_who_lost_the_job(self, runners: Runners) -> None:
        late, _ = runners.start("late", lease_seconds=SHORT)
        late.commit(checkpoint(1))
        store, lease = runners.start("next")
        person = runners.store("person")
        holder = person.holder()
        assert holder is not None and holder.mark == lease.mark
        for asked in (1, 2):
            person.ask_to_stop(holder)
            with pytest.raises(LostError):
                late.prune()
            store.inbox()
            assert lease.stops_asked == asked

    def test_a_message_that_who_lost_the_job_claimed_is_processed_by_the_next(self, runners: Runners) -> None:
        late, _, store, _ = self.overtake(runners)
        (name,) = (one.name for one in late.inbox())
        assert late.claim([name]) == {name}
        with pytest.raises(LostError):
            late.commit(checkpoint(3))
        assert [one.name for one in store.inbox()] == [name] and store.claim([name]) == {name}
        store.commit(checkpoint(3))
        store.drop([name])
        assert late.inbox() == []

    # ---- the lease

    def test_a_lease_is_lost_by_its_own_clock_and_renewed_by_the_next_commit(self, runners: Runners) -> None:
        store, lease = runners.start("only", lease_seconds=SHORT)
        seq = 0

        def is_renewed() -> bool:
            nonlocal seq
            seq += 1
            store.commit(checkpoint(seq))
            return not lease.is_lost

        for _ in range(2):
            # Nobody has taken the job: whoever finds that out goes on.
            wait_until(lambda: lease.is_lost, "the lease runs out by the runner's own clock")
            wait_until(is_renewed, "a commit renews the lease")

    def test_while_a_lease_lasts_others_are_told_who_has_the_job(self, runners: Runners, home: Home) -> None:
        _, lease = runners.start("first")
        for _ in range(2):
            with pytest.raises(BusyError) as caught:
                runners.store("second").lock(wait_seconds=0)
            assert caught.value.exit_code == 75
            holder = runners.store("second").holder()
            assert holder is not None and holder.describe() in caught.value.message
            assert lease_of(home)[0] == lease.epoch and not lease.is_lost

    def test_a_lease_that_is_renewed_right_after_the_look_is_not_taken(self, runners: Runners, home: Home) -> None:
        store, lease = runners.start("first", lease_seconds=SHORT)
        store.commit(checkpoint(1), [record("a")])
        wait_until(lambda: not lease_of(home, exact=True)[2], "the lease runs out")

        class Renewed(WrappedHome):
            def head(self, *, exact: bool = False) -> Head:
                found = super().head(exact=exact)
                if exact:
                    home.beat(lease.epoch, LONG)
                return found

        second = runners.store("second", wrap=Renewed)
        with pytest.raises(BusyError):
            second.lock(wait_seconds=0)
        assert home.head().epoch == lease.epoch
        store.commit(checkpoint(2), [record("b")])

    def test_who_waits_gets_the_job_when_it_is_given_back(self, runners: Runners) -> None:
        _, first = runners.start("first")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(runners.start, "second")
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            first.release()
            _, second = waiting.result(timeout=60)
        assert second.epoch == first.epoch + 1

    def test_of_six_that_start_at_once_one_has_the_job(self, runners: Runners, home: Home) -> None:
        stores = [runners.store(str(number)) for number in range(6)]

        def start(store: KeyedStore) -> KeyedLease | None:
            at_once.wait()
            try:
                return store.lock(wait_seconds=0)
            except BusyError:
                return None

        for round_ in range(1, 4):
            at_once = Barrier(len(stores))
            with ThreadPoolExecutor(len(stores)) as threads:
                (winner,) = filter(None, threads.map(start, stores))
            assert winner.epoch == round_ == home.head().epoch
            winner.release()

    @pytest.fixture
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen([sys.executable, "-c", _HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            yield child
            child.kill()

    def taken_by(self, process: subprocess.Popen[bytes], home: Home, ttl_seconds: float, **changed: str) -> None:
        """The lease is taken in the name of another process."""
        assert process.stdout is not None
        holder = msgspec.json.decode(process.stdout.readline())
        home.take(home.head(), msgspec.json.encode({**holder, **changed}), ttl_seconds)

    def test_a_holder_of_this_machine_that_was_killed_is_replaced_at_once(
        self, runners: Runners, home: Home, process: subprocess.Popen[bytes]
    ) -> None:
        self.taken_by(process, home, LONG)
        with pytest.raises(BusyError, match=f"pid {process.pid}"):
            runners.store("next").lock(wait_seconds=0)
        assert runners.store("person").holder() is not None
        process.kill()
        process.wait()
        assert runners.store("person").holder() is None
        _, lease = runners.start("next", wait_seconds=0)
        assert (lease.epoch, lease.left_mark) == (2, "left")

    @pytest.mark.parametrize(
        "elsewhere", [{"pid_namespace": "pid:[1]"}, {"boot": "another"}], ids=["container", "boot"]
    )
    def test_a_holder_elsewhere_counts_as_alive_until_its_lease_runs_out_whatever_its_host_is_called(
        self, runners: Runners, home: Home, process: subprocess.Popen[bytes], elsewhere: dict[str, str]
    ) -> None:
        self.taken_by(process, home, LONG, **elsewhere)
        process.kill()
        process.wait()
        with pytest.raises(BusyError):
            runners.store("next").lock(wait_seconds=0)
        holder = runners.store("person").holder()
        assert holder is not None and holder.host == Holder.of_this_process(mark="").host
        home.beat(1, SHORT)
        _, lease = runners.start("next")
        # What it started is not here.
        assert (lease.epoch, lease.left_mark) == (2, "")

    def test_epochs_only_grow_over_the_end_of_a_run_and_over_clearing(self, runners: Runners, home: Home) -> None:
        for epoch in range(1, 8, 2):
            store, lease = runners.start("first")
            assert lease.epoch == epoch == home.head().epoch
            end_run(store)
            lease.release()
            store, lease = runners.start("second")
            assert lease.epoch == epoch + 1
            store.clear()
            assert (home.head().epoch, store.summaries()) == (epoch + 1, [])
            lease.release()

    def test_a_runner_that_died_leaves_everything_that_it_committed(self, runners: Runners) -> None:
        store, _ = runners.start("first", lease_seconds=SHORT)
        store.commit(checkpoint(1), [record("a")])
        refs = store.commit(checkpoint(2), [record("b")])
        store.compact(checkpoint(3), refs)
        store, _ = runners.start("second", lease_seconds=SHORT)
        found = store.load().checkpoint
        assert found is not None and (found.seq, keys(store)) == (3, ["b"])
        store.finish(summary())
        store, _ = runners.start("third")
        assert store.load().checkpoint is None and [one.run_id for one in store.summaries()] == [RUN]
        reopen(store)
        assert keys(store) == ["b"]

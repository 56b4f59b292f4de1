"""The contract of the lock: one runner, who it is, and its end."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentrun.errors import BusyError
from agentrun.testing.launches import Launches, OnOneStore


class LeaseContract(OnOneStore):
    def test_the_lock_lets_one_in(self, launches: Launches) -> None:
        launches.next()
        second = launches.look()
        with pytest.raises(BusyError) as caught:
            second.lock(wait_seconds=0)
        assert caught.value.exit_code == 75
        assert "another runner has this" in caught.value.message
        launches.end()
        second.lock(wait_seconds=0).release()

    def test_who_waits_gets_the_lock_when_it_is_released(self, launches: Launches, tmp_path: Path) -> None:
        launches.next()

        def wait_for_it() -> None:
            # Opened here: a store is used by one thread.
            self.make_store(tmp_path).lock(wait_seconds=30).release()

        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(wait_for_it)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            launches.end()
            waiting.result(timeout=30)

    def test_a_lease_may_be_released_twice_and_leaves_the_next_one_alone(self, launches: Launches) -> None:
        launches.next()
        first = launches.lease
        first.release()
        first.release()
        launches.next()
        first.release()
        with pytest.raises(BusyError):
            launches.look().lock(wait_seconds=0)

    def test_each_launch_has_a_mark_of_its_own_and_a_released_one_leaves_none(self, launches: Launches) -> None:
        marks = set()
        for _ in range(3):
            launches.next()
            marks.add(launches.lease.mark)
            assert launches.lease.left_mark == ""
        assert len(marks) == 3 and all(marks)

    def test_a_lease_that_is_held_is_not_lost_and_its_descriptor_is_open(self, launches: Launches) -> None:
        launches.next()
        assert launches.lease.is_lost is False
        if launches.lease.fd is not None:
            os.fstat(launches.lease.fd)

    def test_the_holder_is_known_to_readers_while_it_has_the_lock(self, launches: Launches) -> None:
        launches.next()
        with launches.look().reader() as reader:
            holder = reader.holder()
        assert holder is not None and launches.look().holder() == holder
        assert (holder.pid, holder.mark) == (os.getpid(), launches.lease.mark)
        launches.end()
        with launches.look().reader() as reader:
            assert reader.holder() is None is launches.look().holder()

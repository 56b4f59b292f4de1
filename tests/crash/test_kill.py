"""kill -9 of forked runners, at random moments and at every call to the disk. `make torture` kills many more."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from crash.harness import run_apart

KILLS = int(os.environ.get("AGENTRUN_CRASH_KILLS", "3000"))


@pytest.mark.parametrize("lightly", [False, True], ids=["launches", "their parts"])
def test_of_runs_killed_at_random_nothing_is_lost_run_twice_or_out_of_order(lightly: bool) -> None:
    each = KILLS // 4
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda seed: run_apart("items", {"lightly": lightly}, kills=each, seed=seed), (1, 2)))
    faults = [fault for one in found for fault in one["faults"]]
    assert not faults, faults
    kills = sum(one["kills"] for one in found)
    print(kills, "kills")
    assert kills == each * 2
    # The kills fell between the beginning and the end of runs, not all before the first item.
    assert sum(one["runs"] for one in found) >= kills // 100


def test_of_runs_that_die_at_each_call_to_the_disk_the_next_launch_is_right() -> None:
    found = run_apart("items", {"total": 12, "compacts": True})
    assert not found["faults"], found["faults"]
    print(found["kills"], "kills")
    assert found["kills"] > 200 and found["kills"] == found["runs"]

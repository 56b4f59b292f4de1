"""Runners with five steps and one question an item, killed at random: nothing finished is done again, nothing that a
person said is lost."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from crash.harness import Long, run_apart
from crash.scenarios.steps import KINDS, Kind

KILLS: dict[Kind, int] = {"loop": 150, "thread": 75, "process": 20, "bash": 20}
"""150, fewer where a launch is dear: worker processes, and a shell that starts `agentrun step` and `agentrun ask`.
300 of each are in the long set."""
IN_FULL = 300
AT_ONCE = 2


@pytest.mark.parametrize("kind", KINDS)
def test_no_finished_step_is_called_again_no_answer_lost_and_no_question_asked_twice(kind: Kind) -> None:
    found = run_apart("steps", {"kind": kind}, kills=KILLS[kind], seed=f"{kind} 1")
    print(found)
    assert not found["faults"], found["faults"]
    assert found["kills"] == KILLS[kind]
    # They fell where there was something to lose.
    assert found["runs"] and found["answers"] and found["remembered"] > found["kills"]


def test_wherever_a_launch_dies_that_takes_in_answers_or_remembers_steps_the_next_one_is_right() -> None:
    found = run_apart("steps", {"kind": "loop", "total": 2})
    print(found)
    assert not found["faults"], found["faults"]
    assert found["kills"] > 100 and found["kills"] == found["runs"]


def _long(rng: random.Random, minutes: float) -> tuple[int, int]:
    """300 kills of each kind, however long that takes, and then more of them until the time is over."""
    until, tried, failed = time.monotonic() + minutes * 60, 0, 0

    with ThreadPoolExecutor(AT_ONCE) as pool:
        # The dear ones first, so that they do not end alone.
        left, seeds = 0.0, {kind: rng.getrandbits(32) for kind in KINDS}
        while True:
            ends = [
                pool.submit(run_apart, "steps", {"kind": kind}, kills=IN_FULL, seed=seeds[kind], seconds=left)
                for kind in reversed(KINDS)
            ]
            for one in ends:
                found = one.result()
                tried += found["kills"]
                failed += bool(found["faults"])
                for fault in found["faults"]:
                    print(f"FAILED {fault}", flush=True)
            left = until - time.monotonic()
            if left <= 0:
                return tried, failed
            seeds = {kind: rng.getrandbits(32) for kind in KINDS}


LONG: dict[str, Long] = {"steps and questions": _long}

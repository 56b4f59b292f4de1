"""`kill -9` at random moments, through the real command: nothing finished is lost or run again."""

from __future__ import annotations

import random

import pytest

from crash.command_line import AGENTS, place
from crash.harness import Long, Plan, again_and_again, kill_at_random
from crash.scenarios import command

KILLS = {
    ("async", 1): 19,
    ("async", 16): 19,
    ("thread", 1): 15,
    ("thread", 16): 15,
    ("command", 1): 12,
    ("command", 16): 10,
    ("process", 1): 7,
    ("process", 16): 3,
}
"""100, fewer where a launch is dear; `make torture` goes on."""


def kill(kind: str, concurrency: int, *, kills: int, seed: object) -> int:
    found = kill_at_random(command.make(kind=kind, concurrency=concurrency), Plan(kills, seed))
    print(found)
    assert not found["faults"], found["faults"]
    return int(found["kills"])


@pytest.mark.parametrize(("kind", "concurrency"), KILLS)
def test_after_any_kills_the_results_are_those_of_an_undisturbed_run(kind: str, concurrency: int) -> None:
    wanted = KILLS[kind, concurrency]
    assert kill(kind, concurrency, kills=wanted, seed=f"kill {kind} {concurrency}") == wanted


@pytest.mark.parametrize("kind", AGENTS)
def test_an_undisturbed_run_writes_what_we_expect(kind: str) -> None:
    with place(kind=kind, total=20, concurrency=4) as job:
        assert job.finish() == 0
        job.check_results()
        assert sorted(job.calls()[1]) == list(range(20))


def _one(rng: random.Random) -> int:
    kind, concurrency = rng.choice(list(KILLS))
    return kill(kind, concurrency, kills=12, seed=rng.getrandbits(64))


LONG: dict[str, Long] = {"kill -9 of the real command": again_and_again(_one)}

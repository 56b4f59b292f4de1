"""`kill -9` at random moments, through the real command, with the state in every kind of store."""

from __future__ import annotations

import random

import pytest

from areas.stores.shared import STORES, serve
from crash.harness import Long, Plan, again_and_again, kill_at_random
from crash.scenarios import command

KILLS, MANY_KILLS = 5, 25
"""In the area, and in each round of `make torture`."""


def kill(store: str, *, concurrency: int, kills: int, seed: object) -> int:
    with serve(store) as environ:
        found = kill_at_random(command.make(concurrency=concurrency, environ=environ), Plan(kills, seed))
    assert not found["faults"], found["faults"]
    return int(found["kills"])


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("store", STORES)
def test_after_any_kills_the_results_are_those_of_an_undisturbed_run(store: str, concurrency: int) -> None:
    assert kill(store, concurrency=concurrency, kills=KILLS, seed=f"kill {store} {concurrency}") == KILLS


def _one(rng: random.Random) -> int:
    return kill(rng.choice(STORES), concurrency=rng.choice([1, 16]), kills=MANY_KILLS, seed=rng.getrandbits(64))


LONG: dict[str, Long] = {"kill -9 of the real command, in other stores": again_and_again(_one)}

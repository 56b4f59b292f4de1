"""A run with a budget: what a provider counted, which nobody can take back, is within it."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from crash.forked import NOTE, Place
from crash.harness import Fault, Launched, Scenario, freeze
from crash.workload import scratch

Moment = Literal["requests", "ended", "first"]
"""Killed at any moment, only once an item has ended, or always in the first item of a launch."""

BUDGET = 1.0
CONCURRENCY = 16
ITEMS = 120
"""More than the budget is enough for, several times."""
SIGMA = 0.4

AGENT = f"""{NOTE}
import random

async def agent(item, ctx):
    key, cost = item.text.split()
    # The provider counts what it is asked, whether or not somebody is still there when it answers.
    note(key, cost)
    await asyncio.sleep(random.uniform(0.001, 0.005))
    ctx.usage(cost=float(cost))
    await asyncio.sleep(random.uniform(0.0, 0.002))
    return key
"""


def prices(seed: int, *, count: int = ITEMS) -> list[float]:
    """About 0.03 each, log-normal. The dearest is among the first ten: of one that is dearer than all before it nobody
    can know, and at the very end there would be no room for it."""
    chance = random.Random(f"prices {seed}")
    found = [round(0.03 * chance.lognormvariate(0.0, SIGMA), 6) for _ in range(count)]
    at, first = found.index(max(found)), chance.randrange(10)
    found[at], found[first] = found[first], found[at]
    return found


def make_place(base: Path, costs: list[float]) -> Place:
    keys = [f"item-{n:03} {cost}" for n, cost in enumerate(costs)]
    return Place(base, keys, AGENT, concurrency=CONCURRENCY, budget=BUDGET)


def counted(place: Place) -> float:
    """By the provider."""
    return sum(float(note.split()[1]) for note in place.notes())


class Spending(Scenario):
    # The budget is spent.
    exits = ends = (4,)

    def __init__(self, costs: list[float], moment: Moment) -> None:
        assert moment in get_args(Moment)
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        self._costs, self._moment = costs, moment
        self._is_last = self._is_complete = False
        self._report: dict[str, Any] = {}

    def warm_up(self) -> None:
        if make_place(self._base / "first", [0.01]).launch().exit_code != 0:
            raise Fault("an item that costs little is not done")
        freeze()

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def close(self) -> None:
        self._closing.close()

    def begin(self, chance: random.Random) -> None:
        self._place = make_place(self._base / "run", self._costs)

    def between(self, chance: random.Random) -> None:
        self._noted = len(self._place.notes())

    def start(self, chance: random.Random) -> Launched:
        return self._place.start()

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        place, moment = self._place, self._moment
        wanted = self._noted + (1 if moment == "first" else chance.randint(0, 6))

        def is_time() -> bool:
            return len(place.notes()) >= wanted and (moment != "ended" or _has_ended(place))

        launched.reaches(is_time, "requests")
        time.sleep(chance.uniform(0.0, 0.006) if moment != "first" else 0.0)

    def let_end(self) -> None:
        self._is_last = True

    def check(self, ended: int) -> None:
        self._is_complete = self._is_last

    def check_complete(self) -> None:
        summary = self._place.summary
        told = {name: summary[name] for name in ("exit_code", "reason", "usage")}
        self._report = {**told, "counted": counted(self._place)}

    def report(self) -> dict[str, Any]:
        return self._report


def _has_ended(place: Place) -> bool:
    """An item has, and its cost is on disk."""
    return place.is_begun and "dearest" in orjson.loads((place.folder / "state.json").read_bytes())["usage"]


def make(*, costs: list[float], moment: Moment = "requests") -> Spending:
    return Spending(costs, moment)

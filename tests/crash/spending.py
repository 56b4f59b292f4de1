"""A run with a budget, whose runner is killed: what a provider counted, which nobody can take back."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import orjson

from crash.forked import NOTE, Fault, Place, wait_or_end
from crash.workload import scratch

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


def spend(costs: list[float], seed: int, kills: int, after: str = "requests") -> dict[str, Any]:
    """Kill so often, then go on until the budget is spent. The kills come at random moments of the launches, or only
    once an item has `ended`, or always in the `first` one."""
    chance, killed = random.Random(f"spend {seed}"), 0
    with scratch() as path:
        # Once without a fork, so that a child need not import anything.
        assert make_place(path / "first", [0.01]).launch()["exit_code"] == 0
        place = make_place(path / "run", costs)
        for _ in range(kills):
            wanted = len(place.notes()) + (1 if after == "first" else chance.randint(0, 6))

            def is_time(wanted: int = wanted) -> bool:
                return len(place.notes()) >= wanted and (after != "ended" or _has_ended(place))

            pid = place.start()
            wait_or_end(pid, is_time, "requests")
            time.sleep(chance.uniform(0.0, 0.006) if after != "first" else 0.0)
            os.kill(pid, signal.SIGKILL)
            ended = place.end(pid)
            killed += ended == -signal.SIGKILL
            if ended not in (4, -signal.SIGKILL):
                raise Fault(f"a launch ended with {ended}")
        summary = place.launch()
        return {
            "kills": killed,
            "exit_code": summary["exit_code"],
            "reason": summary["reason"],
            "counted": counted(place),
            "usage": summary["usage"],
        }


def _has_ended(place: Place) -> bool:
    """An item has, and its cost is on disk."""
    return place.is_begun and "dearest" in orjson.loads((place.folder / "state.json").read_bytes())["usage"]

"""How long do callers of a help desk wait, on an average day and on a bad one?

Each item is a plan, a row of plans.csv: how many calls an hour, how many minutes a call, how many people. It takes CPU
time and no model, which is what a cluster is for.
"""

import csv
import heapq
import random
from typing import Any

OPEN_MINUTES = 8 * 60


def simulate(item: Any, ctx: Any) -> dict[str, Any]:
    row = item.data
    plan = {"calls_per_hour": float(row["calls_per_hour"]), "minutes_per_call": float(row["minutes_per_call"])}
    # A finished step is not done again, on whichever machine the item continues.
    waits = ctx.step("days", simulate_days, item.key, ctx.params["days"], int(row["people"]), **plan)
    # A file for each item. If the worker is on another machine, it comes back to the runner's.
    with open(ctx.out / "days.csv", "w", newline="") as file:
        csv.writer(file).writerows([("day", "mean wait in minutes"), *enumerate(waits, 1)])
    waits.sort()
    return {"average": round(sum(waits) / len(waits), 1), "bad day": waits[len(waits) * 9 // 10]}


def simulate_days(name: str, days: int, people: int, *, calls_per_hour: float, minutes_per_call: float) -> list[float]:
    """The mean wait of each day, in minutes. The same name gives the same days."""
    chance = random.Random(name)
    return [round(mean_wait(chance, people, calls_per_hour / 60, minutes_per_call), 1) for _ in range(days)]


def mean_wait(chance: random.Random, people: int, calls_per_minute: float, minutes_per_call: float) -> float:
    free_at = [0.0] * people
    now, waited, calls = chance.expovariate(calls_per_minute), 0.0, 0
    while now < OPEN_MINUTES:
        begins = max(now, heapq.heappop(free_at))
        heapq.heappush(free_at, begins + chance.expovariate(1 / minutes_per_call))
        waited, calls = waited + begins - now, calls + 1
        now += chance.expovariate(calls_per_minute)
    return waited / max(calls, 1)

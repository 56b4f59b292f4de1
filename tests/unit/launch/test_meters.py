"""The limits that a job sets itself: no minute has more than the limit and a tenth, also across kills."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentrun.checkpoint.checkpoint import RunContext
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.meters import Meter, Meters
from agentrun.values.units import Rate, parse_rate
from unit.launch.simulated import VirtualLoop

MINUTE = 60.0


def job_with(**settings: Any) -> Job:
    items = ItemsSpec(kind="lines", pattern="-")
    return Job(name="j", base=Path("/"), items=items, agent="a.py:f", params={}, output="o.jsonl", **settings)


def most_in_a_minute(taken: list[tuple[float, float]]) -> float:
    """Of times, in order, and amounts."""
    times = [time for time, _ in taken]
    return max(
        sum(amount for _, amount in taken[start : bisect_left(times, times[start] + MINUTE)])
        for start in range(len(taken))
    )


def on_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


async def wait_out(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return False


@pytest.mark.parametrize("text", ["60/min", "5/s", "7/min", "3600/h"])
def test_attempts_begin_at_the_limit_and_never_faster(text: str) -> None:
    limit = parse_rate(text)
    taken: list[tuple[float, float]] = []

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        meters = Meters(job_with(rate=limit), stops_within=wait_out, clock=clock)

        async def slot() -> None:
            while clock() < 1020 + 10 * MINUTE:
                await meters.enter()
                taken.append((clock(), 1.0))
                await asyncio.sleep(0.3)

        await asyncio.gather(*(slot() for _ in range(16)))

    on_virtual_time(main())
    a_minute = limit.count * MINUTE / limit.per_seconds
    assert most_in_a_minute(taken) <= a_minute + max(1, limit.count / 10)
    assert len(taken) >= 0.95 * 10 * a_minute


@pytest.mark.parametrize("seed", range(10))
def test_a_launch_that_was_killed_has_used_what_it_may_have_used(seed: int) -> None:
    rng, limit = random.Random(seed), Rate(60, MINUTE)
    taken: list[tuple[float, float]] = []
    context, in_flight = RunContext(launches=1, date="2026-05-04"), 0

    async def launch(seconds: float) -> None:
        nonlocal in_flight
        clock = asyncio.get_running_loop().time
        meters = Meters(job_with(rate=limit, retries=2), stops_within=wait_out, clock=clock)
        meters.restore(context, died_with=in_flight)
        until, tried = clock() + seconds, 0
        while clock() < until:
            if not tried:
                # The checkpoint that names the item.
                meters.keep(context)
                in_flight = 1
            await meters.enter()
            taken.append((clock(), 1.0))
            tried = 0 if tried == 2 or rng.random() < 0.5 else tried + 1
            await asyncio.sleep(rng.uniform(0, 0.5))

    async def main() -> None:
        for _ in range(40):
            await launch(rng.uniform(0.5, 20))
            await asyncio.sleep(rng.uniform(0, 3))

    on_virtual_time(main())
    assert most_in_a_minute(taken) <= 60 + 6


def test_tokens_of_launches_that_were_killed_stay_used() -> None:
    rng = random.Random(9)
    taken: list[tuple[float, float]] = []
    context, in_flight = RunContext(launches=1, date="2026-05-04"), 0

    async def launch(seconds: float) -> None:
        nonlocal in_flight
        clock = asyncio.get_running_loop().time
        meters = Meters(job_with(tokens=parse_rate("12k/min")), stops_within=wait_out, clock=clock)
        meters.restore(context, died_with=in_flight)
        until = clock() + seconds
        while clock() < until:
            meters.keep(context)
            in_flight = 1
            expected = await meters.enter()
            assert expected is not None
            taken.append((clock(), 100.0))
            await asyncio.sleep(rng.uniform(0, 0.2))
            meters.leave(expected, 100)

    async def main() -> None:
        for _ in range(40):
            await launch(rng.uniform(0.5, 20))

    on_virtual_time(main())
    assert most_in_a_minute(taken) <= 12_000 + 1_200


@pytest.mark.parametrize("limit", ["rate", "tokens"])
def test_what_was_used_since_the_very_first_checkpoint_stays_used_too(limit: str) -> None:
    context = RunContext(launches=1, date="2026-05-04")

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        meters = [Meters(job_with(**{limit: Rate(60, MINUTE)}), stops_within=wait_out, clock=clock) for _ in range(2)]
        meters[0].keep(context)
        for _ in range(6):
            await meters[0].enter()
        meters[1].restore(context, died_with=6)
        began = clock()
        await meters[1].enter()
        assert clock() > began

    on_virtual_time(main())


def test_a_clean_stop_is_continued_where_it_was() -> None:
    limit = Rate(10, 3600.0)
    meter, again = Meter(limit), Meter(limit)
    meter.take(1000.0)
    again.restore(meter.used_until, 1001.0, taken=0)
    assert again.wait(1001.0) == pytest.approx(meter.wait(1001.0))
    again.restore(meter.used_until + 1e6, 1001.0, taken=0)
    assert again.wait(1001.0) <= 3600 / 10, "the clock was set back"


def test_a_call_that_used_more_than_expected_holds_up_the_next_launch_as_it_would_this_one() -> None:
    context = RunContext(launches=1, date="2026-05-04")

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        meters = [Meters(job_with(tokens=parse_rate("12k/min")), stops_within=wait_out, clock=clock) for _ in range(2)]
        taken = await meters[0].enter()
        assert taken is not None
        began = clock()
        meters[0].leave(taken, 12_000)
        meters[0].keep(context)
        meters[1].restore(context, died_with=0)
        await meters[1].enter()
        assert 54 <= clock() - began <= 61
        context.tokens_until += 1e6
        meters[1].restore(context, died_with=0)
        began = clock()
        await meters[1].enter()
        assert clock() - began <= 61, "the clock was set back"

    on_virtual_time(main())


def test_tokens_are_taken_at_the_mean_and_corrected() -> None:
    rng = random.Random(4)
    taken: list[tuple[float, float]] = []

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        meters = Meters(job_with(tokens=parse_rate("100k/min")), stops_within=wait_out, clock=clock)

        async def slot() -> None:
            while clock() < 1020 + 10 * MINUTE:
                expected = await meters.enter()
                assert expected is not None
                began, tokens = clock(), rng.randint(500, 1500)
                await asyncio.sleep(rng.uniform(0.5, 2))
                taken.append((began, tokens))
                meters.leave(expected, tokens)

        await asyncio.gather(*(slot() for _ in range(8)))

    on_virtual_time(main())
    taken.sort()
    assert most_in_a_minute(taken) <= 110_000
    assert sum(amount for _, amount in taken) >= 0.95 * 1_000_000


def test_a_stop_ends_the_wait() -> None:
    async def stops(seconds: float) -> bool:
        return True

    async def main() -> None:
        meters = Meters(job_with(rate=Rate(1, 3600.0)), stops_within=stops, clock=asyncio.get_running_loop().time)
        assert await meters.enter() == 0.0
        assert await meters.enter() is None

    on_virtual_time(main())

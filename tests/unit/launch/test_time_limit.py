"""--until and --max-time: no new items after that, and those in flight have the grace period."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import datetime

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.errors import PlanError, UsageError
from agentrun.events import Stopping
from agentrun.job.options import Options, read_options
from agentrun.launch.launch import Launch
from agentrun.launch.time_limit import LOOK_SECONDS, TimeLimit, time_limit_of
from agentrun.values.until import parse_until
from unit.launch.bench import FakeExecutor, World, answer, names


class Held(FakeExecutor):
    """Attempts of these items go on until they are released. When all of them are in flight, the time is over: until
    then the launch's clock stands still, however slow the machine is."""

    def __init__(self, world: World, *held: str) -> None:
        super().__init__(self.script)
        self.release = asyncio.Event()
        self._left = set(held)
        self._held = frozenset(held)
        began = time.time()
        world.wall_clock = lambda: began + (0.0 if self._left else 60.0)

    async def script(self, attempt: Attempt, channel: Channel) -> Outcome:
        self._left.discard(attempt.item.key)
        if attempt.item.key in self._held:
            await self.release.wait()
        return await answer(attempt, channel)


async def until_stopping(world: World) -> Stopping:
    while True:
        for event in world.events:
            if isinstance(event, Stopping):
                return event
        await asyncio.sleep(0.005)


def test_when_the_time_is_over_what_is_in_flight_finishes(world: World) -> None:
    world.items(*names(10))
    world.job = replace(world.job, concurrency=2)
    executor = Held(world, "k002", "k003")

    async def during(launch: Launch) -> None:
        stopping = await until_stopping(world)
        assert (stopping.in_flight, stopping.grace_seconds) == (2, world.job.grace_seconds)
        executor.release.set()

    summary = world.go(executor=executor, during=during, max_time=0.2)
    assert (summary.exit_code, summary.stopped_by, summary.counts["done"]) == (4, "max_time", 4)
    assert summary.reason == "the time limit of 0.2s is reached"
    state = world.state()
    assert state is not None and state.running == [] and state.stopped is not None
    assert (state.stopped.by, state.stopped.next) == ("max_time", "agentrun resume job")
    assert any("no new items after" in note for note in world.planned().notes)
    assert world.go().exit_code == 0
    assert world.ran == names(10)[4:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_what_does_not_finish_within_the_grace_period_goes_back(world: World) -> None:
    world.items(*names(4))
    world.job = replace(world.job, concurrency=2, grace_seconds=0.0, max_time_seconds=0.2)
    executor = Held(world, "k001")
    summary = world.go(executor=executor)
    assert (summary.exit_code, summary.stopped_by) == (4, "max_time")
    assert not executor.live and summary.counts["failed"] == 0
    assert world.go(max_time="none").exit_code == 0
    assert "k001" in world.ran


def test_a_signal_in_the_grace_period_ends_them_at_once(world: World) -> None:
    world.items(*names(4))

    async def during(launch: Launch) -> None:
        await until_stopping(world)
        launch.request_stop(15)

    summary = world.go(executor=Held(world, "k001"), during=during, max_time=0.2)
    assert summary.exit_code == 143 and summary.counts["pending"] == 3


def test_a_run_that_is_complete_in_the_grace_period_is_done(world: World) -> None:
    world.items("a")
    executor = Held(world, "a")

    async def during(launch: Launch) -> None:
        await until_stopping(world)
        executor.release.set()

    assert world.go(executor=executor, during=during, max_time=0.2).exit_code == 0


def test_a_flag_counts_before_the_job_and_for_one_launch(world: World) -> None:
    now = time.time()
    job = replace(world.job, until=parse_until("07:00"), max_time_seconds=10.0)
    limit = time_limit_of(job, Options(), now=now)
    assert limit is not None and (limit.at, limit.by) == (now + 10, "max_time")
    limit = time_limit_of(job, Options(max_time="none"), now=now)
    assert limit is not None and limit.by == "until"
    assert time_limit_of(job, Options(max_time="none", until="none"), now=now) is None
    soon = datetime.fromtimestamp(now + 5).isoformat()  # noqa: DTZ006
    limit = time_limit_of(job, Options(until=parse_until(soon)), now=now)
    assert limit is not None and limit.by == "until" and limit.at == pytest.approx(now + 5, abs=0.01)


def test_a_date_that_has_passed_is_refused(world: World) -> None:
    world.items("a")
    with pytest.raises(PlanError, match="--until is 2020-01-01T07:00, which has passed; write a later time"):
        world.go(until=parse_until("2020-01-01T07:00"))
    world.job = replace(world.job, until=parse_until("2020-01-01T07:00"))
    with pytest.raises(PlanError, match=r"run\.until is 2020-01-01T07:00, which has passed"):
        world.go()
    assert world.go(until="none").exit_code == 0


@pytest.mark.parametrize("given", [{"until": "25:00"}, {"max_time": "0s"}, {"max_time": "soon"}])
def test_what_is_no_time_is_refused_with_the_flag(given: dict[str, str]) -> None:
    (name,) = given
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} is"):
        read_options(given, are_flags=True)


def test_a_machine_that_slept_past_the_time_notices_soon(world: World) -> None:
    """The clock jumps by hours while a timer of seconds runs."""
    times = iter([0.0, 10.0, 9 * 3600.0])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    limit = TimeLimit(8 * 3600.0, "until", "", "")
    asyncio.run(limit.wait(clock=lambda: next(times), sleep=sleep))
    assert slept == [LOOK_SECONDS, LOOK_SECONDS]

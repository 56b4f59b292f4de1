"""Limits and stopping."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.events import Stopping
from agentrun.launch.launch import Launch
from agentrun.system.deadlines import LATE_SECONDS
from unit.launch.bench import (
    FakeExecutor,
    World,
    answer,
    failing,
    idle,
    names,
)


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("limit", [1, 3, 5])
def test_limit_runs_exactly_so_many(world: World, concurrency: int, limit: int) -> None:
    world.items(*names(9))
    world.job = replace(world.job, concurrency=concurrency)
    summary = world.go(limit=limit)
    assert summary.exit_code == 4 and summary.counts["done"] == limit
    assert sorted(world.ran) == names(limit)
    assert world.go(limit=9 - limit).exit_code == 0
    assert world.keys() == names(9)


def test_the_first_signal_lets_what_is_in_flight_finish(world: World) -> None:
    world.items(*names(10))
    world.job = replace(world.job, concurrency=2)
    stopped = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key in ("k002", "k003"):
            await stopped.wait()
        return await answer(attempt, channel)

    executor = FakeExecutor(script)

    async def during(launch: Launch) -> None:
        while executor.live != {"k002", "k003"}:
            await asyncio.sleep(0)
        launch.request_stop(15)
        await idle()
        assert executor.live == {"k002", "k003"}
        stopped.set()

    summary = world.go(executor=executor, during=during)
    assert summary.exit_code == 143 and summary.counts["done"] == 4
    (stopping,) = [event for event in world.events if isinstance(event, Stopping)]
    assert (stopping.in_flight, stopping.grace_seconds) == (2, world.job.grace_seconds)
    found = world.state()
    assert found is not None and found.running == []
    assert world.go().exit_code == 0
    assert world.ran == names(10)[4:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_the_second_signal_cancels_and_the_items_go_back(world: World) -> None:
    world.items(*names(6))
    world.job = replace(world.job, concurrency=2)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key in ("k002", "k003"):
            await asyncio.Event().wait()
        return await answer(attempt, channel)

    executor = FakeExecutor(script)

    async def during(launch: Launch) -> None:
        while executor.live != {"k002", "k003"}:
            await asyncio.sleep(0)
        launch.request_stop(2)
        launch.request_stop(2)

    summary = world.go(executor=executor, during=during)
    assert summary.exit_code == 130 and summary.counts["pending"] == 4
    assert not executor.live
    found = world.state()
    assert found is not None and found.running == [] and found.counts["failed"] == 0
    assert world.go().exit_code == 0
    assert world.ran == names(6)[2:]


def test_without_an_end_the_grace_period_cancels(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, grace_seconds=0.0)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        assert world.launch is not None
        world.launch.request_stop(1)
        await asyncio.Event().wait()
        raise AssertionError

    assert world.go(script).exit_code == 129
    assert world.state() is not None


def test_frozen_past_the_grace_period_what_has_arrived_counts(world: World) -> None:
    world.items("a")
    world.job = replace(world.job, grace_seconds=0.05)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await asyncio.get_running_loop().sock_recv(ours, 1)
        for _ in range(20):
            await asyncio.sleep(0)
        return await answer(attempt, channel)

    executor = FakeExecutor(script)

    async def during(launch: Launch) -> None:
        while not executor.live:
            await asyncio.sleep(0)
        launch.request_stop(15)
        theirs.sendall(b"x")
        # As if the process had been frozen.
        time.sleep(0.05 + LATE_SECONDS + 0.2)

    with ours, theirs:
        summary = world.go(executor=executor, during=during)
    assert summary.counts["done"] == 1


def test_a_signal_before_the_work_begins_starts_nothing(world: World) -> None:
    world.items("a", "b")

    def prepared() -> None:
        assert world.launch is not None
        world.launch.request_stop(15)

    assert world.go(prepared=prepared).exit_code == 143
    assert world.ran == []
    assert world.go().exit_code == 0


def test_a_signal_counts_over_the_reason_that_came_first(world: World) -> None:
    """Of several exit codes: signals, then 75, then 4."""
    world.items(*names(6))
    world.job = replace(world.job, concurrency=2)
    bad_key_is_told = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k000":
            return failing("Stop")
        await bad_key_is_told.wait()
        return await answer(attempt, channel)

    async def during(launch: Launch) -> None:
        while not any(isinstance(event, Stopping) for event in world.events):
            await asyncio.sleep(0)
        launch.request_stop(15)
        bad_key_is_told.set()

    assert world.go(script, during=during).exit_code == 143

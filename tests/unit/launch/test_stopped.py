"""What the last checkpoint of a launch says of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Used
from agentrun.checkpoint.checkpoint import Checkpoint, Stopped
from agentrun.checkpoint.record import Record
from agentrun.errors import LaterError
from agentrun.launch.launch import Launch
from agentrun.money.usage import Reported
from unit.launch.bench import FakeExecutor, Hooked, Script, World, answer, failing, idle, names, only


def stopped(world: World) -> Stopped:
    found = world.state()
    assert found is not None and found.stopped is not None and found.running == []
    assert found.stopped.at <= found.updated_at
    return found.stopped


def always(outcome: Outcome) -> Script:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return outcome

    return script


def test_a_limit_is_the_reason_and_the_next_launch_clears_it_with_its_first_commit(world: World) -> None:
    world.items(*names(4))
    world.go(limit=2)
    found = stopped(world)
    assert (found.reason, found.exit_code, found.next) == ("--limit is reached", 4, "agentrun resume job")
    seen: list[Stopped | None] = []

    def note(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        seen.append(checkpoint.stopped)

    def hook(store: Hooked) -> None:
        store.before = note

    world.hook = hook
    assert world.go().exit_code == 0
    assert len(seen) >= 3 and set(map(type, seen)) == {type(None)}


def test_a_launch_that_died_leaves_none(world: World) -> None:
    world.items(*names(6))
    world.go(limit=1)
    world.crash(commits=3)
    found = world.state()
    assert found is not None and found.running and found.stopped is None


def test_failures_in_a_row_say_what_to_do(world: World) -> None:
    world.items(*names(6))
    world.go(always(failing()))
    found = stopped(world)
    assert found.exit_code == 4 and "3 items failed in a row" in found.reason
    assert "--stop-after-failures 0" in found.hint


def test_a_signal_is_the_reason(world: World) -> None:
    world.items(*names(6))
    asked = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await asked.wait()
        return await answer(attempt, channel)

    executor = FakeExecutor(script)

    async def during(launch: Launch) -> None:
        while not executor.began:
            await asyncio.sleep(0)
        launch.request_stop(2)
        asked.set()

    assert world.go(executor=executor, during=during).exit_code == 130
    assert (stopped(world).exit_code, stopped(world).reason) == (130, "stopped by Ctrl-C")


def test_a_quota_says_until_when_and_a_bad_key_does_not(world: World) -> None:
    world.items(*names(3))
    at = "2030-01-02T02:00:00+00:00"
    assert world.go(always(failing("Stop", resume_at=at)), no_wait=True).exit_code == 75
    assert (stopped(world).exit_code, stopped(world).resume_at) == (75, at)
    assert world.go(always(failing("Stop")), now=True).exit_code == 4
    assert (stopped(world).exit_code, stopped(world).resume_at) == (4, "")


def test_a_budget_names_the_flag_that_continues(world: World) -> None:
    world.items(*names(6))
    world.job = replace(world.job, budget=1.0)

    async def dear(attempt: Attempt, channel: Channel) -> Outcome:
        await idle()
        await channel(Used(Reported(cost=0.6)))
        return await answer(attempt, channel)

    assert world.go(dear).exit_code == 4
    assert (stopped(world).flags, stopped(world).next) == ("--budget 2", "agentrun resume job --budget 2")


def test_what_is_left_over_is_told_with_the_command_that_really_runs_it(world: World) -> None:
    world.items("x", "y")
    for launch in range(3):
        assert world.go(only({"x": failing()})).exit_code == 1
        expected = "agentrun resume job --failed" if launch == 2 else "agentrun resume job"
        assert (stopped(world).reason, stopped(world).next) == ("1 of 2 items failed", expected)


def test_an_error_that_ends_the_launch_is_the_reason(world: World) -> None:
    world.items(*names(3))

    class Broken(FakeExecutor):
        async def start(self) -> None:
            raise LaterError("the machine is out of memory")

    with pytest.raises(LaterError):
        world.go(executor=Broken())
    assert (stopped(world).exit_code, stopped(world).reason) == (75, "the machine is out of memory")


def test_an_agent_that_only_its_script_knows_is_continued_by_that(world: World) -> None:
    world.items(*names(3))
    world.job = replace(world.job, agent="__main__:triage")
    world.go(limit=1)
    assert stopped(world).next == "run the script or notebook that started it again"


def test_items_in_flight_keep_the_time_at_which_they_were_taken(world: World) -> None:
    world.items(*names(5))
    world.job = replace(world.job, concurrency=2)
    first = asyncio.Event()
    seen: list[dict[str, str]] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k000":
            await first.wait()
        elif attempt.item.key == "k004":
            first.set()
        return await answer(attempt, channel)

    def note(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        seen.append({one.key: one.since for one in checkpoint.running})

    def hook(store: Hooked) -> None:
        store.after = note

    world.hook = hook
    assert world.go(script).exit_code == 0
    since = [one["k000"] for one in seen if "k000" in one]
    assert len(since) > 3 and len(set(since)) == 1 and since[0]

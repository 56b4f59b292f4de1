"""Steps: what an item remembers, and when."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome, call_json
from agentrun.agents.messages import KnownStep, Received, Refused, Reply, StepGet, StepPut, Used
from agentrun.money.usage import Reported
from unit.launch.bench import FakeExecutor, Script, World, failing, intact, names


async def do_step(channel: Channel, name: str, value: Any, calls: Counter[str], key: str) -> Any:
    """As the context does it."""
    known = await channel(StepGet(name))
    assert isinstance(known, KnownStep)
    if known.output is not None:
        return orjson.loads(known.output)
    calls[f"{key} {name} {known.n}"] += 1
    output = orjson.dumps(value).decode()
    assert await channel(StepPut(name, known.n, output)) == Received()
    return value


def with_steps(calls: Counter[str], *steps: str, fails: str = "") -> Script:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        results = []
        for number, name in enumerate(steps):
            if name == fails and attempt.number == 1 and attempt.launch == 1:
                return failing("Retry")
            results.append(await do_step(channel, name, f"{key}/{name}/{number}", calls, key))
        return Outcome("done", orjson.dumps(results))

    return script


def outputs(world: World) -> dict[str, Any]:
    return {line["key"]: line["output"] for line in world.results()}


def test_a_step_that_is_on_disk_is_never_called_again_wherever_the_launch_dies(world: World) -> None:
    steps = ("a", "b", "a")
    expected = {key: [f"{key}/a/0", f"{key}/b/1", f"{key}/a/2"] for key in names(3)}
    for commits in range(1, 14):
        for landed in (False, True):
            calls: Counter[str] = Counter()
            world.clear()
            world.items(*names(3))
            world.crash(with_steps(calls, *steps), commits=commits, landed=landed, overwrite=True)
            state = world.state()
            kept = {tuple(one.split()) for one in calls} if state else set()
            before = Counter(calls)
            assert world.go(with_steps(calls, *steps), overwrite=True).exit_code == 0
            assert outputs(world) == expected
            again = [one for one in calls if calls[one] > 1]
            # At most the one whose commit was under way; if that landed, none.
            assert len(again) <= (0 if landed else 1), (commits, landed, again)
            assert kept or not before


def test_a_retry_and_a_later_launch_go_on_after_the_finished_steps(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x")
    assert world.go(with_steps(calls, "a", "b", "c", fails="c")).exit_code == 0
    assert calls == {"x a 0": 1, "x b 0": 1, "x c 0": 1}


def test_a_failed_item_keeps_its_steps_for_the_next_launch(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x")

    async def fails(attempt: Attempt, channel: Channel) -> Outcome:
        await do_step(channel, "a", 1, calls, "x")
        return failing()

    assert world.go(fails).exit_code == 1
    assert world.go(with_steps(calls, "a", "b")).exit_code == 0
    assert calls == {"x a 0": 1, "x b 0": 1}
    assert outputs(world) == {"x": [1, "x/b/1"]}


def test_an_item_that_changed_remembers_nothing_of_what_it_was(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x", "y")
    world.crash(with_steps(calls, "a", "b"), commits=2, landed=True)
    world.items("x", "y", x=7)
    seen: list[int] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        seen.append(attempt.generation)
        return await with_steps(calls, "a", "b")(attempt, channel)

    assert world.go(script).exit_code == 0
    assert calls["x a 0"] == 2
    assert seen == [1, 0]


def test_forget_steps_begins_unfinished_items_anew_once(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x", "y", "z")
    world.crash(with_steps(calls, "a", "b"), commits=5, landed=True)
    assert world.go(with_steps(calls, "a", "b"), forget_steps=True, limit=1).exit_code == 4
    assert world.go(with_steps(calls, "a", "b")).exit_code == 0
    # x was done before; y had one step, and did it again; not a third time.
    assert calls["x a 0"] == 1
    assert calls["y a 0"] == 2
    assert max(calls.values()) == 2


def test_a_step_sequence_that_differs_is_warned_of_in_the_items_log(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x")

    async def fails(attempt: Attempt, channel: Channel) -> Outcome:
        for name in ("search", "draft"):
            await do_step(channel, name, 1, calls, "x")
        return failing()

    async def differs(attempt: Attempt, channel: Channel) -> Outcome:
        for name in ("search", "outline", "draft"):
            await do_step(channel, name, 2, calls, "x")
        return failing()

    assert world.go(fails).exit_code == 1
    folders = [world.folder / "logs"]
    assert world.go(differs).exit_code == 1
    if world.memory is None:
        said = b"".join(path.read_bytes() for folder in folders for path in folder.iterdir())
        assert said.count(b"its steps differ from last time: step 2 is 'outline' now") == 1
        assert b"search, draft" in said
    records = [record for record in world.records() if record.kind == "failed"]
    assert not records[0].warning
    assert records[-1].warning.startswith("its steps differ")


def test_steps_side_by_side_that_ended_in_another_order_are_no_difference(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items("x")

    async def fails(attempt: Attempt, channel: Channel) -> Outcome:
        assert await channel(StepGet("a")) == KnownStep(0, found=False)
        await do_step(channel, "b", 2, calls, "x")
        return failing()

    assert world.go(fails).exit_code == 1
    assert world.go(with_steps(calls, "a", "b")).exit_code == 0
    records = [record for record in world.records() if record.kind == "done"]
    assert not records[-1].warning


def test_what_is_wrong_with_a_message_is_told_and_nothing_is_kept(world: World) -> None:
    world.items("x")
    replies: list[Reply] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        messages: list[dict[str, Any]] = [
            {"type": "step_get", "name": ""},
            {"type": "step_get"},
            {"type": "step_get", "name": "\udc80"},
            {"type": "step_get", "name": "é" * 513},
            {"type": "step_put", "name": "a", "n": 0, "output": "1"},
            {"type": "step_put", "name": "a", "n": 0, "output": "nonsense"},
            {"type": "ask", "question": "  "},
            {"type": "usage", "cost": -1},
            {"type": "dance"},
        ]
        replies.extend([await call_json(channel, message) for message in messages])
        return Outcome("done", b"1")

    assert world.go(script).exit_code == 0
    assert len(replies) == 9 and all(isinstance(reply, Refused) for reply in replies)
    assert [record.kind for record in world.records()] == ["done"]


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 10**400, "long", None])
def test_a_step_that_took_a_time_that_is_none_is_kept_and_read_again(world: World, seconds: Any) -> None:
    world.items("x")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        found = await channel(StepGet("a"))
        assert isinstance(found, KnownStep)
        if found.output is not None:
            return Outcome("done", found.output.encode())
        put = {"type": "step_put", "name": "a", "n": 0, "output": "7", "seconds": seconds}
        assert await call_json(channel, put) == Received()
        return failing()

    assert world.go(script).exit_code == 1
    assert world.go(script).exit_code == 0
    assert outputs(world) == {"x": 7}


def test_what_is_said_after_the_attempt_is_over_does_not_count(world: World) -> None:
    world.items("x")
    channels: list[Channel] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        channels.append(channel)
        if attempt.number == 1:
            return failing("Retry")
        assert isinstance(await channels[0](StepGet("a")), Refused)
        return Outcome("done", b"1")

    assert world.go(script).exit_code == 0


def test_compaction_drops_the_steps_of_settled_items_and_keeps_those_of_others(world: World) -> None:
    calls: Counter[str] = Counter()
    world.items(*names(6))
    world.crash(with_steps(calls, "a", "b"), commits=10, landed=True)
    assert world.go(with_steps(calls, "a", "b"), compact_over_bytes=1, limit=1).exit_code == 4
    kinds = Counter((record.kind, record.key) for record in world.records())
    assert kinds["step", "k000"] == 0
    assert world.go(with_steps(calls, "a", "b")).exit_code == 0
    assert max(calls.values()) == 1
    assert outputs(world)["k003"] == ["k003/a/0", "k003/b/1"]


def test_side_by_side_each_item_has_its_own_steps(world: World) -> None:
    world.job = replace(world.job, concurrency=8)
    calls: Counter[str] = Counter()
    world.items(*names(30))
    for commits in (3, 9, 17):
        world.crash(with_steps(calls, "a", "b", "c"), commits=commits, landed=True, overwrite=True)
    executor = FakeExecutor(with_steps(calls, "a", "b", "c"))
    assert world.go(executor=executor).exit_code == 0
    assert executor.most_live <= 8
    assert max(calls.values()) <= 3
    assert outputs(world) == {key: [f"{key}/a/0", f"{key}/b/1", f"{key}/c/2"] for key in names(30)}


def test_a_step_that_is_about_to_be_written_when_its_attempt_is_cancelled_is_paid_once(world: World) -> None:
    world.items(*names(2))
    world.job = replace(world.job, concurrency=2)

    async def stopped(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key != names(2)[0]:
            return Outcome("done", b"1")
        for name in ("x", "y"):
            await channel(StepGet(name))
        # The first is being written, the second waits for that, and then nobody waits for either of them.
        sending.extend(asyncio.ensure_future(put(name, channel)) for name in ("x", "y"))
        assert world.launch is not None
        world.launch.request_stop(2)
        world.launch.request_stop(2)
        await asyncio.sleep(0)
        raise AssertionError("the attempt is cancelled")

    sending: list[asyncio.Future[Reply]] = []

    async def put(name: str, channel: Channel) -> Reply:
        await channel(Used(Reported(cost=0.25)))
        return await channel(StepPut(name, 0, '"done"'))

    assert world.go(stopped).exit_code == 130
    calls: Counter[str] = Counter()
    with intact():
        summary = world.go(with_steps(calls, "x", "y"))
    assert summary.exit_code == 0 and summary.usage.cost == 0.5

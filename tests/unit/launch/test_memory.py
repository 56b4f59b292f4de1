"""What an item remembers for a framework: steps by name, entries in order, questions by key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.context import Context
from agentrun.agents.memory import ItemMemory, digest_of
from agentrun.agents.messages import Message, Reply
from agentrun.errors import Parked
from unit.launch.bench import Script, World, names
from unit.launch.test_people import post, reply

Work = Callable[[ItemMemory, str], Awaitable[Any]]


class ChannelEnd:
    """An agent end of nothing but the channel."""

    awaits = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def log(self, text: str) -> None: ...

    def send(self, message: Message) -> None:
        raise AssertionError("nothing is sent without a call")

    def call(self, message: Message) -> Awaitable[Reply]:
        return self._channel(message)


def running(work: Work) -> Script:
    """The agent of which `work` is the body."""

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        memory = ItemMemory(Context(attempt, ChannelEnd(channel), carries=False))
        try:
            value = await work(memory, attempt.item.key)
        except Parked:
            return Outcome("waiting")
        return Outcome("done", orjson.dumps(value))

    return script


def outputs(world: World) -> dict[str, Any]:
    return {line["key"]: line["output"] for line in world.results()}


def test_entries_are_a_prefix_in_order_wherever_the_launch_dies(world: World) -> None:
    """Two are added side by side, and each attempt adds what is missing of ten."""

    async def work(memory: ItemMemory, key: str) -> Any:
        there = await memory.entries("log")
        seen.append(there)
        assert there == list(range(len(there)))
        for first in range(len(there), 10, 2):
            await asyncio.gather(*(memory.add("log", n, view=f"entry {n}") for n in range(first, min(first + 2, 10))))
        return await memory.entries("log")

    lengths = set()
    for commits in range(1, 9):
        for landed in (False, True):
            seen: list[list[int]] = []
            world.clear()
            world.items("x")
            world.crash(running(work), commits=commits, landed=landed, overwrite=True)
            assert world.go(running(work)).exit_code == 0
            assert outputs(world) == {"x": list(range(10))}
            lengths.add(len(seen[-1]))
    assert len(lengths) > 3
    views = [record.view for record in world.records() if record.kind == "step"]
    assert views == [f"entry {n}" for n in range(10)]


def test_steps_with_a_request_are_found_by_name_in_any_order_and_warn_of_nothing(world: World) -> None:
    calls: Counter[str] = Counter()

    def in_order(*order: str, fails: bool) -> Work:
        async def work(memory: ItemMemory, key: str) -> Any:
            def calling(name: str) -> Callable[[], Awaitable[Any]]:
                async def call() -> Any:
                    calls[name] += 1
                    return {"of": name}

                return call

            for name in order:
                await memory.step(name, calling(name), request=["same", name], view=lambda value: value["of"])
            if fails:
                await memory.ask("Wait?", {}, key="never")
            return len(order)

        return work

    world.items("x")
    assert world.go(running(in_order("call 1", "call 2", "call 3", fails=True))).exit_code == 3
    post(world, reply(world, "x"))
    assert world.go(running(in_order("call 3", "call 1", "call 2", fails=False))).exit_code == 0
    assert calls == {"call 1": 1, "call 2": 1, "call 3": 1}
    assert outputs(world) == {"x": 3}
    done = world.records()[-1]
    assert (done.kind, done.warning) == ("done", "")
    steps = [record for record in world.records() if record.kind == "step"]
    assert [(step.no, step.view, step.request) for step in steps] == [
        (-1, name, digest_of(["same", name])) for name in ("call 1", "call 2", "call 3")
    ]


def test_a_step_that_is_given_something_else_keeps_its_result_and_the_log_says_so(world: World) -> None:
    asked = "first"

    async def work(memory: ItemMemory, key: str) -> Any:
        async def call() -> str:
            return asked

        value = await memory.step("model", call, request=asked)
        await memory.ask("Right?", {}, key="right")
        return value

    world.items("x")
    assert world.go(running(work)).exit_code == 3
    post(world, reply(world, "x"))
    asked = "second"
    assert world.go(running(work)).exit_code == 0
    assert outputs(world) == {"x": "first"}
    log = b"".join(path.read_bytes() for path in (world.base / ".agentrun").rglob("*.log")).decode()
    if world.memory is None:
        assert "step 'model' is given something else than before; its remembered result is used" in log


def test_a_question_with_a_key_has_its_answer_whatever_its_words_and_place(world: World) -> None:
    words = ["Send it?", "Send it?"]

    async def work(memory: ItemMemory, key: str) -> Any:
        texts = []
        for text, name in zip(words, order, strict=True):
            texts.append((await memory.ask(text, {}, key=name)).text)
        return texts

    world.items("x")
    order = ["first", "second"]
    assert world.go(running(work)).exit_code == 3
    post(world, reply(world, "x", question=1, text="to the first"))
    assert world.go(running(work)).exit_code == 3
    post(world, reply(world, "x", question=2, text="to the second"))
    words, order = ["Really?", "And this?"], ["second", "first"]
    assert world.go(running(work)).exit_code == 0
    assert outputs(world) == {"x": ["to the second", "to the first"]}


def test_side_by_side_each_item_has_its_own_entries(world: World) -> None:
    async def work(memory: ItemMemory, key: str) -> Any:
        for n in range(3):
            await memory.add("log", f"{key} {n}", view="")
            await asyncio.sleep(0)
        return await memory.entries("log")

    world.items(*names(5))
    assert world.go(running(work)).exit_code == 0
    assert outputs(world) == {key: [f"{key} {n}" for n in range(3)] for key in names(5)}


def test_an_agent_that_cannot_await_is_told_to_be_async(world: World) -> None:
    class BlockingEnd(ChannelEnd):
        awaits = False

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        with pytest.raises(TypeError, match="make the agent async, and await this"):
            ItemMemory(Context(attempt, BlockingEnd(channel), carries=False))
        return Outcome("done", b"1")

    world.items("x")
    assert world.go(script).exit_code == 0

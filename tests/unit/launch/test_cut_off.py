"""Attempts that are cut off while what they did is being written: the next one begins after that, and knows it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.agents.messages import EntriesGet, EntryAdd, KnownEntries, KnownStep, Reply, StepGet, StepPut
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.errors import DiskError
from agentrun.launch.launch import Launch
from unit.launch.bench import Hooked, World, idle
from unit.launch.test_steps import outputs
from waiting import PATIENCE_SECONDS, eventually_on_loop

TIMED_OUT = Outcome("failed", failure=Failure("timeout", "timed out after 2 s"))
REFUSED = Outcome("failed", failure=Failure("exception", "busy", types=("openai.RateLimitError",), status=429))


class CutOff:
    """An agent whose first attempt ends while the disk holds back what it `does`. The second one returns the reply."""

    outcome = TIMED_OUT
    cancels = True
    """Whether what it does is cancelled when the attempt ends, or left behind."""
    fails = False
    """Whether the disk fails in the end."""

    def __init__(self, world: World, does: Callable[[Channel], Awaitable[Reply]]) -> None:
        self.world, self.does = world, does
        self.begun = 0
        self.has_ended = False
        self.is_writing, self.may_land = threading.Event(), threading.Event()
        self.meanwhile: Callable[[Launch], None] = lambda launch: None
        world.items("x")
        # With one at a time, commits are made on the loop: nothing can happen beside them.
        world.job = replace(world.job, concurrency=2)
        world.hook = self._hook

    def _hook(self, store: Hooked) -> None:
        store.meanwhile = self._hold

    def _hold(self, checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if any(record.kind == "step" for record in records):
            self.is_writing.set()
            assert self.may_land.wait(PATIENCE_SECONDS)
            if self.fails:
                raise DiskError("the disk failed")

    async def __call__(self, attempt: Attempt, channel: Channel) -> Outcome:
        self.begun += 1
        if self.begun > 1:
            return Outcome("done", orjson.dumps(str(await self.does(channel))))
        self.doing = asyncio.ensure_future(self.does(channel))
        await eventually_on_loop(self.is_writing.is_set, "its record is being written")
        if self.cancels:
            self.doing.cancel()
            await asyncio.wait({self.doing})
        self.has_ended = True
        return self.outcome

    async def _let_land(self, launch: Launch) -> None:
        try:
            await eventually_on_loop(lambda: self.has_ended, "the first attempt ends")
            # Whatever does not wait for the disk happens now.
            await idle()
            assert self.begun == 1
            self.meanwhile(launch)
        finally:
            self.may_land.set()

    def go(self) -> int:
        return self.world.go(self, during=self._let_land).exit_code


async def search(channel: Channel) -> Reply:
    known = await channel(StepGet("search"))
    assert isinstance(known, KnownStep)
    return known if known.output is not None else await channel(StepPut("search", known.n, '"paid"'))


async def write_down(channel: Channel) -> Reply:
    before = await channel(EntriesGet("journal"))
    assert isinstance(before, KnownEntries)
    await channel(EntryAdd("journal", f'"entry {len(before.entries) + 1}"'))
    return before


@pytest.mark.parametrize("outcome", [TIMED_OUT, REFUSED], ids=["timeout", "refusal"])
@pytest.mark.parametrize("cancels", [True, False], ids=["cancelled", "left-behind"])
def test_a_retry_begins_when_the_step_of_the_last_attempt_is_on_disk_and_recalls_it(
    world: World, cancels: bool, outcome: Outcome
) -> None:
    agent = CutOff(world, search)
    agent.cancels, agent.outcome = cancels, outcome
    assert agent.go() == 0
    assert agent.begun == 2 and outputs(world) == {"x": str(KnownStep(0, True, '"paid"'))}
    assert [record.n for record in world.records() if record.kind == "step"] == [0]


def test_a_retry_adds_its_entries_after_those_of_the_last_attempt(world: World) -> None:
    agent = CutOff(world, write_down)
    assert agent.go() == 0
    assert outputs(world) == {"x": str(KnownEntries(['"entry 1"']))}
    entries = [(record.n, bytes(record.output)) for record in world.records() if record.kind == "step"]
    assert entries == [(0, b'"entry 1"'), (1, b'"entry 2"')]


def test_there_is_no_retry_if_the_disk_fails(world: World) -> None:
    agent = CutOff(world, search)
    agent.fails = True
    with pytest.raises(DiskError, match="the disk failed"):
        agent.go()
    assert agent.begun == 1


def test_there_is_no_retry_if_the_launch_is_stopped_meanwhile(world: World) -> None:
    agent = CutOff(world, search)
    agent.meanwhile = lambda launch: launch.request_stop(2)
    assert agent.go() == 130
    assert agent.begun == 1
    assert world.go(agent).exit_code == 0
    assert outputs(world) == {"x": str(KnownStep(0, True, '"paid"'))}

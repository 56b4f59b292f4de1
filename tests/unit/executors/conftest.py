"""A bench for executors: a folder with an agent in it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentrun.agents.agent import Agent, load_agent
from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.messages import Message, Received, Reply
from agentrun.executors.choice import open_executor
from agentrun.executors.port import Executor
from agentrun.executors.prints import capture_prints
from agentrun.item import Item
from agentrun.job.job import ItemsSpec, Job
from agentrun.system.guardian import Guardian
from waiting import PATIENCE_SECONDS, eventually_on_loop


class Bench:
    """A folder with an agent in it, and its executor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[dict[str, Any]] = []
        self.environ: dict[str, str] = {}
        self.guardian: Guardian | None = None
        self._launches = itertools.count(1)

    def job(self, **changes: Any) -> Job:
        values: dict[str, Any] = {
            "name": "test",
            "base": self.folder,
            "items": ItemsSpec(kind="python", pattern=""),
            "params": {"customer": "acme"},
            "output": "out.jsonl",
        }
        return Job(**{**values, **changes})

    @contextlib.asynccontextmanager
    async def executor(self, source: str, isolation: str, **changes: Any) -> AsyncIterator[Executor]:
        """For `def agent(…)` in the source; on the loop it is made async."""
        source = dedent(source)
        if isolation == "loop":
            source = source.replace("def agent(", "async def agent(").replace("def __call__(", "async def __call__(")
        elif isolation == "thread":
            changes["isolation"] = "thread"
        (self.folder / "executors_agent.py").write_text(source)
        name = "Agent" if "class Agent" in source else "agent"
        job = self.job(agent=f"executors_agent.py:{name}", **changes)
        with capture_prints():
            agent = load_agent(job)
            assert agent.isolation == isolation
            async with self.opened(job, agent) as opened:
                yield opened

    @contextlib.asynccontextmanager
    async def programs(self, *command: str, **changes: Any) -> AsyncIterator[Executor]:
        job = self.job(command=command, **changes)
        async with self.opened(job, load_agent(job)) as opened:
            yield opened

    @contextlib.asynccontextmanager
    async def opened(self, job: Job, agent: Agent) -> AsyncIterator[Executor]:
        executor = open_executor(job, agent, guardian=self.guardian, environ=self.environ)
        try:
            await executor.start()
            yield executor
        finally:
            await executor.close()

    def attempt(self, data: Any = None, **changes: Any) -> Attempt:
        """Another attempt of item 0, each of a launch of its own: no two have the same id."""
        values: dict[str, Any] = {
            "item": Item(0, "k", data),
            "generation": 0,
            "launch": next(self._launches),
            "number": 1,
            "run_id": "r",
            "series": "s",
            "params": {"customer": "acme"},
            "carry": None,
            "timeout_seconds": 30.0,
            "log_path": self.folder / "slot.log",
            "folder": str(self.folder / "work"),
        }
        return Attempt(**{**values, **changes})

    @staticmethod
    def item(index: int, data: Any = None) -> Item:
        return Item(index, f"k{index}", data)

    async def channel(self, message: Message) -> Reply:
        form = message.as_json()
        assert form.pop("id") and form.pop("no")
        self.messages.append(form)
        return Received()

    def log(self) -> str:
        path = self.folder / "slot.log"  # made when something is printed
        return path.read_text() if path.exists() else ""

    @staticmethod
    def output(outcome: Outcome) -> Any:
        assert outcome.kind == "done", outcome
        return json.loads(outcome.output)

    @staticmethod
    def cause(outcome: Outcome) -> str:
        assert outcome.failure is not None
        return outcome.failure.cause

    @staticmethod
    async def eventually(condition: Callable[[], bool], what: str) -> None:
        await eventually_on_loop(condition, what)

    def run(self, scenario: Awaitable[None]) -> None:
        """In the bench's folder, as a launch does."""

        async def main() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await scenario

        with contextlib.chdir(self.folder):
            asyncio.run(main())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path, modules, descriptors = list(sys.path), set(sys.modules), open_descriptors()
    yield Bench(tmp_path)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("executors_agent"):
            del sys.modules[name]
    assert open_descriptors() <= descriptors


def open_descriptors() -> set[str]:
    """What is open, by number: an executor leaves nothing behind."""
    return set(os.listdir("/dev/fd"))

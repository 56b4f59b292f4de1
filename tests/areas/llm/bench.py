"""A prompt and its attempts, in this process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.messages import Message, Received, Reply
from agentrun.errors import AgentError
from agentrun.executors.choice import open_executor
from agentrun.item import Item
from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.job.job import Job

KEY = "sk-canary-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"category": {"enum": ["bill", "spam"]}, "pages": {"type": "integer", "minimum": 1}},
    "required": ["category", "pages"],
    "additionalProperties": False,
}


class Bench:
    """A folder with a prompt in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[dict[str, Any]] = []

    def job(self, **values: Any) -> Job:
        values = {"prompt": "{text}", "model": "openai:gpt-5-mini", "items": {"jsonl": "x.jsonl"}, **values}
        return build_job([Layer("job.toml", values)], base=self.folder, file=None, default_name="test")

    def refusal(self, **values: Any) -> str:
        with pytest.raises(AgentError) as caught:
            load_agent(self.job(**values))
        return str(caught.value)

    def run(self, items: list[Item], /, **values: Any) -> list[Outcome]:
        """One attempt of each item, one after the other, as a launch makes them."""
        job = self.job(**values)

        async def channel(message: Message) -> Reply:
            self.messages.append(message.as_json())
            return Received()

        async def main() -> list[Outcome]:
            executor = open_executor(job, load_agent(job), guardian=None, environ={})
            await executor.start()
            try:
                return [await executor.run(self.attempt(item, job), channel) for item in items]
            finally:
                await executor.close()

        return asyncio.run(main())

    def attempt(self, item: Item, job: Job) -> Attempt:
        return Attempt(
            item=item,
            generation=0,
            launch=1,
            number=1,
            run_id="r",
            series="r",
            params=job.params,
            carry=None,
            timeout_seconds=30.0,
            log_path=self.folder / "slot.log",
            folder=str(self.folder / "work"),
        )

    def output(self, item: Item, /, **values: Any) -> Any:
        (outcome,) = self.run([item], **values)
        assert outcome.kind == "done", outcome
        return json.loads(outcome.output)

    def file(self, name: str, data: bytes) -> Item:
        (self.folder / name).write_bytes(data)
        return Item(0, name, path=self.folder / name)


def line(text: str, key: str = "k") -> Item:
    return Item(0, key, line=text)

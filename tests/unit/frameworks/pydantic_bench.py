"""A bench for agents of pydantic-ai: a scripted model, a job on a store that can die, and people who answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from agentrun.agents.agent import agent_from_function
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary
from agentrun.executors.loop import LoopExecutor
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.launch.launch import Launch
from agentrun.people import desk
from agentrun.views.finding import KnownJob
from unit.launch.bench import Died, HookedMemory, no_sleep

JOB = "bench"
Turn = Sequence[TextPart | ToolCallPart]


def call(tool: str, call_id: str, /, **args: Any) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=call_id)


@dataclass
class Script:
    """A model that takes its turns in order, whatever it is told; and what it was asked."""

    turns: Sequence[Turn]
    name: str = "support"
    made: list[str] = field(default_factory=list)
    """Every call, as the step that is to remember it."""
    last: list[ModelMessage] = field(default_factory=list)

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._respond, model_name="scripted")

    def _respond(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        number = sum(isinstance(message, ModelResponse) for message in messages)
        self.made.append(f"{self.name}: model#{number}")
        self.last = messages
        usage = RequestUsage(input_tokens=100 + number, output_tokens=10)
        return ModelResponse(list(self.turns[number]), usage=usage)

    def note(self, tool: str, call_id: str | None, n: int = 0) -> None:
        self.made.append(f"{self.name}: {tool} {call_id}#{n}")


def say(text: str) -> list[TextPart]:
    return [TextPart(text)]


def returned(messages: Sequence[ModelMessage]) -> dict[str, Any]:
    """What the tools returned to the model, by call id."""
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return {part.tool_call_id: part.content for part in parts if isinstance(part, ToolReturnPart)}


class Bench:
    """One job over a few items, launch after launch, in memory."""

    def __init__(self, folder: Path, agent: Any, items: Sequence[Any] = ("hello",)) -> None:
        self.folder, self.target, self.items = folder, agent, items
        self.memory = HookedMemory()
        self.died_at_end = False
        self.ended: Summary
        """How the last launch ended that did not die."""
        self.job = Job(
            name=JOB,
            base=folder,
            items=ItemsSpec(kind="python", pattern=""),
            agent="agent",
            params={},
            output="out.jsonl",
            retries=0,
        )

    def go(self, **changed: Any) -> Summary:
        """One launch; `changed` are values of the job."""
        job = replace(self.job, **changed)
        agent = agent_from_function(self.target, job)
        launch = Launch(
            job, self.memory, agent=agent.fingerprint, options=Options(wait_seconds=0), items=self.items, sleep=no_sleep
        )
        try:
            nothing_to_do = launch.prepare()
            self.ended = nothing_to_do or asyncio.run(launch.work(LoopExecutor(job, agent)))
            return self.ended
        finally:
            launch.close()

    def crash(self, *, landed: bool, steps: int = 1) -> bool:
        """A launch that dies when it commits a step, or the item's end for the first time; False if it got through.

        It dies after that many steps were committed (`landed`), or when the next one is about to be.
        """
        left = steps

        def look(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
            nonlocal left
            kinds = {record.kind for record in records}
            if "step" in kinds:
                left -= 1
                if left < (1 if landed else 0):
                    raise Died("died")
            if "done" in kinds and not self.died_at_end:
                self.died_at_end = True
                raise Died("died")

        if landed:
            self.memory.after = look
        else:
            self.memory.before = look
        try:
            self.go(crash_limit=0)
            return False
        except Died:
            return True
        finally:
            self.memory.before = self.memory.after = None

    def outputs(self) -> list[Any]:
        return [orjson.loads(line)["output"] for line in (self.folder / "out.jsonl").read_bytes().splitlines()]

    def steps(self) -> list[str]:
        """The remembered steps of all items, each with its occurrence."""
        with self.memory.reader() as reader:
            return [f"{record.name}#{record.n}" for _, record in reader.records() if record.kind == "step"]

    def views(self) -> dict[str, str]:
        with self.memory.reader() as reader:
            return {f"{r.name}#{r.n}": r.view for _, r in reader.records() if r.kind == "step"}

    def questions(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(view.question.text, view.question.details) for view in desk.questions(self._known)]

    def answer(self, *, yes: bool = True, text: str = "", **details: Any) -> None:
        """Answer the question of the only item that waits."""
        (view,) = desk.questions(self._known)
        selection = desk.Selection(items=(view.key,))
        desk.answer(self._known, selection, yes=yes, text=text, details=details, by="ann")

    @property
    def _known(self) -> KnownJob:
        return KnownJob(JOB, self.memory)

    def causes(self) -> list[str]:
        with self.memory.reader() as reader:
            return [record.error.cause for _, record in reader.records() if record.error is not None]


def go_with_deaths(
    bench: Bench, made: list[str], *, landed: bool, go_on: Callable[[], bool] = lambda: False
) -> Counter[str]:
    """Launches of which each dies at a step, until one ends; how often each call was made.

    No call is made that was remembered before. `go_on` is asked after a launch that ended: whether there is a reason
    for another.
    """
    counts = Counter[str]()
    for _ in range(60):
        remembered = set(bench.steps()) if counts else set()
        begun = len(made)
        died = bench.crash(landed=landed)
        assert [name for name in made[begun:] if name in remembered] == [], "finished calls were made again"
        counts.update(made[begun:])
        if not died and not go_on():
            return counts
    pytest.fail("the run does not end")

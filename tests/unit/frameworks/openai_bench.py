"""A bench for agents of the OpenAI Agents SDK: scripted models, a job on a store that can die, people who answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from agents import FunctionTool, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.items import TResponseInputItem, TResponseOutputItem, TResponseStreamEvent
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_usage import InputTokensDetails

import agentrun
from agentrun.people import desk
from agentrun.views.finding import KnownJob
from unit.launch.bench import Died, HookedFolder, HookedMemory, dies_after

JOB = "bench"
Turn = Sequence[TResponseOutputItem]
INPUT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS = 100, 40, 7
# Nothing goes out of this machine.
set_tracing_disabled(True)


def call(tool: str, call_id: str, /, **arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        arguments=json.dumps(arguments), call_id=call_id, name=tool, type="function_call", id=f"fc_{call_id}"
    )


def say(text: str) -> list[TResponseOutputItem]:
    part = ResponseOutputText(annotations=[], text=text, type="output_text")
    return [ResponseOutputMessage(id="msg", content=[part], role="assistant", status="completed", type="message")]


class Script(Model):
    """A model that knows by the conversation which turn it is; every request is noted in `made`."""

    def __init__(self, made: list[str], *turns: Turn, name: str = "support") -> None:
        self.made, self.turns, self.model = made, turns, name
        self.heard: list[Any] = []
        """The input of the last request."""
        self.before: Callable[[int], Any] | None = None
        """Called with the number of each turn; may raise."""

    async def get_response(
        self, system_instructions: str | None, input: str | list[TResponseInputItem], *args: Any, **kwargs: Any
    ) -> ModelResponse:
        items: list[Any] = input if isinstance(input, list) else []
        known = {item.get("call_id") for item in items}
        number = next(n for n, turn in enumerate(self.turns) if not _calls(turn) or not known.issuperset(_calls(turn)))
        if self.before is not None:
            awaited = self.before(number)
            if hasattr(awaited, "__await__"):
                await awaited
        self.made.append(f"model {self.model}#{number}")
        self.heard = items
        usage = Usage(
            requests=1,
            input_tokens=INPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            total_tokens=INPUT_TOKENS + OUTPUT_TOKENS,
            input_tokens_details=InputTokensDetails(cached_tokens=CACHED_TOKENS, cache_write_tokens=0),
        )
        return ModelResponse(output=list(self.turns[number]), usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError

    def told(self, call_id: str) -> Any:
        """What the model was told of a call's result."""
        (found,) = [i for i in self.heard if i.get("type") == "function_call_output" and i["call_id"] == call_id]
        return found["output"]


def _calls(turn: Turn) -> set[str]:
    return {item.call_id for item in turn if isinstance(item, ResponseFunctionToolCall)}


@dataclass
class Bench:
    """One job over a few items, launch after launch."""

    folder: Path
    agent: Any
    items: Sequence[Any] = ("hello",)
    memory: HookedMemory | HookedFolder = field(default_factory=HookedMemory)

    def go(self, **values: Any) -> agentrun.Summary:
        given = {"output": str(self.folder / "out.jsonl"), "retries": 0, "overwrite": True, **values}
        return agentrun.run(self.agent, items=self.items, name=JOB, store=self.memory, **given)

    @property
    def outputs(self) -> list[Any]:
        return [orjson.loads(line)["output"] for line in (self.folder / "out.jsonl").read_bytes().splitlines()]

    @property
    def views(self) -> dict[str, str]:
        """What people see of each step, by its name and occurrence."""
        with self.memory.reader() as reader:
            found = [record for _, record in reader.records() if record.kind == "step"]
        return {record.name + (f"#{record.n}" if record.n else ""): record.view for record in found}

    def question(self) -> tuple[str, Mapping[str, Any]]:
        """Of the only item that waits."""
        (view,) = desk.questions(self._known)
        assert view.question is not None
        return view.question.text, view.question.details

    def answer(self, *, yes: bool = True, text: str = "", **details: Any) -> None:
        (view,) = desk.questions(self._known)
        desk.answer(self._known, desk.Selection(items=(view.key,)), yes=yes, text=text, details=details, by="ann")

    @property
    def causes(self) -> list[str]:
        with self.memory.reader() as reader:
            return [record.error.cause for _, record in reader.records() if record.error is not None]

    @property
    def log(self) -> str:
        """Of all items; only with a folder store."""
        assert self.memory.folder is not None
        return "".join(path.read_text() for path in (self.memory.folder / "logs").rglob("*") if path.is_file())

    @property
    def _known(self) -> KnownJob:
        return KnownJob(JOB, self.memory)


def killed_at_every_commit(
    make: Callable[[list[str]], Bench],
    *,
    landed: bool,
    beside: int = 0,
    answer: Callable[[Bench], None] | None = None,
) -> Counter[str]:
    """Let a run die at each of its commits in turn, and resume it; the calls that were made more often than once.

    If the commit landed, no finished call is made again. Otherwise the one that was being remembered is. `beside` is
    how many others may be in flight meanwhile.
    """
    made: list[str] = []
    undisturbed = make(made)
    _finish(undisturbed, answer)
    expected, calls = undisturbed.outputs, Counter(made)
    assert calls and max(calls.values()) == 1, calls
    again: Counter[str] = Counter()
    for commits in range(1, 1000):
        made = []
        bench = make(made)
        dies_after(commits, landed=landed)(bench.memory)
        try:
            _finish(bench, answer)
            return again
        except Died:
            pass
        finally:
            bench.memory.before = bench.memory.after = None
        _finish(bench, answer)
        assert bench.outputs == expected
        assert set(made) == set(calls)
        twice = {one: count - 1 for one, count in Counter(made).items() if count > 1}
        assert sum(twice.values()) <= beside + (0 if landed else 1), (commits, twice)
        again.update(twice)
    raise AssertionError("it never ends")


def _finish(bench: Bench, answer: Callable[[Bench], None] | None) -> None:
    while (exit_code := bench.go().exit_code) == 3 and answer is not None:
        answer(bench)
    assert exit_code == 0, bench.causes


def looking(made: list[str], name: str = "look", **options: Any) -> FunctionTool:
    """A tool that notes its calls."""

    async def look(context: ToolContext[Any], what: str) -> str:
        made.append(f"{name} {context.tool_call_id}")
        return f"saw {what}"

    return function_tool(look, name_override=name, **options)

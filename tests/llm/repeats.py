"""How many finished calls were made again, by the model's and the tools' own logs.

A call is one request that the model answered in full, or one use of a tool that came to its end. The same call is,
for the model, the same conversation, ids apart; for a tool, the same arguments: these say the item and the place, so
that an undisturbed run makes no call twice.

**A call is finished as soon as something was done with its answer.** For the model: a use of a tool that the answer
asked for has come to its end, or the model was asked something that has the answer in it. For a tool: the model was
asked something that has the result in it. By then the agent's process has had the answer, and could have kept it. **A
finished call is repeated** when the same request *comes* again after that moment and is answered, or when the same
use of a tool *ends* again after it.

Everything else that was made twice was in flight: answered in the instant of the kill, heard by nobody or not yet
kept. That can't be helped; but there is at most one such call for each call that is in flight at a time, and it is
counted beside the others. A request that came before a kill and is answered late is not taken for a repeat: what
counts is when it came. The last answer of an agent has no successor, so it always counts as in flight; that a
finished item is not run again is tested elsewhere. All moments are of the monotonic clock, which the processes of a
machine share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from llm.conversation import Use, key_in, use_of
from llm.tool_model import ModelCall

TOOLS_LOG = "tools.log"
T = TypeVar("T")


@dataclass(frozen=True)
class ToolCall:
    """One use of a tool that came to its end."""

    at: float
    use: Use

    @property
    def key(self) -> str:
        return key_in(self.use[1])


@dataclass(frozen=True)
class Repeats:
    model_calls: int = 0
    tool_calls: int = 0
    repeated_model_calls: int = 0
    """Of finished ones."""
    repeated_tool_calls: int = 0
    in_flight: int = 0
    """Calls that were made again because they were in flight when the run was killed."""

    @property
    def calls(self) -> int:
        return self.model_calls + self.tool_calls

    @property
    def repeated(self) -> int:
        return self.repeated_model_calls + self.repeated_tool_calls

    def __add__(self, other: Repeats) -> Repeats:
        return Repeats(
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.repeated_model_calls + other.repeated_model_calls,
            self.repeated_tool_calls + other.repeated_tool_calls,
            self.in_flight + other.in_flight,
        )


def count_repeats(asked: Iterable[ModelCall], used: Iterable[ToolCall]) -> Repeats:
    """Of one run, in however many launches."""
    asked, used = list(asked), list(used)
    model_finished, tool_finished = _Firsts[str](), _Firsts[Use]()
    asked_by: dict[Use, str] = {}
    for call in asked:
        for fingerprint in call.conversation.goes_on_from:
            model_finished.add(fingerprint, call.at)
        for use in call.conversation.used:
            tool_finished.add(use, call.at)
        asked_by.update((use, call.conversation.fingerprint) for use in call.wants)
    for ended in used:
        if ended.use in asked_by:
            model_finished.add(asked_by[ended.use], ended.at)
    answered = [call for call in asked if call.is_answered]
    different = {call.conversation.fingerprint for call in answered} | {call.use for call in used}
    again = len(answered) + len(used) - len(different)
    models = sum(model_finished.is_before(call.conversation.fingerprint, call.at) for call in answered)
    tools = sum(tool_finished.is_before(call.use, call.at) for call in used)
    return Repeats(len(answered), len(used), models, tools, again - models - tools)


class _Firsts(Generic[T]):
    """The first moment of each."""

    def __init__(self) -> None:
        self._at: dict[T, float] = {}

    def add(self, what: T, at: float) -> None:
        self._at[what] = min(at, self._at.get(what, at))

    def is_before(self, what: T, at: float) -> bool:
        return self._at.get(what, at) < at


def read_tools_log(folder: Path) -> list[ToolCall]:
    """What the tools of the job in this folder have noted, each when it had ended."""
    try:
        lines = (folder / TOOLS_LOG).read_text().splitlines()
    except FileNotFoundError:
        return []
    noted = [json.loads(line) for line in lines]
    return [ToolCall(one["at"], use_of(one["tool"], one["arguments"])) for one in noted]

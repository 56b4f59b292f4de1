"""How many finished calls were made again, by the model's and the tools' own logs.

A call is one request that the model answered in full, or one use of a tool that came to its end. The same call is, for
the model, the same conversation, ids apart; for a tool, the same arguments: these say the item and the place, so that an
undisturbed run makes no call twice.

**A call is finished as soon as the conversation has gone on from it**: the model was asked something that has the call's
answer in it (the model's turn that follows that conversation; the result of that use of a tool). By then the agent's
process has had the answer, done something with it, and could have kept it. **A finished call is repeated** when the same
request *comes* again after that moment and is answered, or when the same use of a tool *ends* again after it.

Everything else that was made twice was in flight: answered in the instant of the kill, heard by nobody or not yet kept.
That can't be helped, but there is at most one such call for each item in flight, and it is counted beside the others.
A request that came before a kill and is answered late is not taken for a repeat: what counts is when it came. An item's
last answer has no successor, so it always counts as in flight; that a finished item is not run again is tested elsewhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llm.conversation import Use, key_in, use_of
from llm.tool_model import ModelCall

TOOLS_LOG = "tools.log"


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
    """Of one run, in however many launches; requests in the order in which they came."""
    asked, used = list(asked), list(used)
    finished: set[tuple[str, str]] = set()
    used_at: dict[Use, float] = {}
    """By use of a tool: when the model was first asked something with its result."""
    answered, repeated = Counter[tuple[str, str]](), 0
    for call in asked:
        conversation = call.conversation
        same = (call.key, conversation.fingerprint)
        if call.is_answered:
            answered[same] += 1
            repeated += same in finished
        finished.update((call.key, one) for one in conversation.goes_on_from)
        for use in conversation.used:
            used_at.setdefault(use, call.at)
    ended = Counter(call.use for call in used)
    repeated_tools = sum(call.at > used_at.get(call.use, float("inf")) for call in used)
    made, made_tools = answered.total(), ended.total()
    again = made - len(answered) + made_tools - len(ended)
    return Repeats(made, made_tools, repeated, repeated_tools, again - repeated - repeated_tools)


def read_tools_log(folder: Path) -> list[ToolCall]:
    """What the tools of the job in this folder have noted, each when it had ended."""
    try:
        lines = (folder / TOOLS_LOG).read_text().splitlines()
    except FileNotFoundError:
        return []
    noted = [json.loads(line) for line in lines]
    return [ToolCall(one["at"], use_of(one["tool"], one["arguments"])) for one in noted]

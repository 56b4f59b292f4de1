"""What a request to a model says, whichever of OpenAI's two APIs it came by.

Ids are no part of what a turn says: a model that is asked the same thing again gives other ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

OUTPUT_TOOL = "final_result"
"""The tool by which pydantic-ai wants a structured answer."""
_KEY = re.compile(r"\bkey=([\w./-]*\w)")

Use = tuple[str, str]
"""One use of a tool: its name and its arguments, as JSON in one form."""


def key_in(text: str) -> str:
    """Whose text it is: the item's key; empty if it does not say."""
    found = _KEY.search(text)
    return found[1] if found else ""


def use_of(name: str, arguments: str | dict[str, Any]) -> Use:
    given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    return name, json.dumps(given, sort_keys=True)


@dataclass(frozen=True)
class Turn:
    role: Literal["user", "assistant", "tool"]
    text: str = ""
    uses: tuple[Use, ...] = ()
    """What the assistant wants to be done."""
    id: str = field(default="", compare=False)
    """Of the call that a tool's turn answers."""
    ids: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Conversation:
    turns: tuple[Turn, ...]
    tools: dict[str, dict[str, Any]]
    """What is offered: the schemas of the arguments, by name."""
    schema: dict[str, Any] | None = None
    """Of the answer, if it is to be structured."""

    @property
    def text(self) -> str:
        """What the user says."""
        return "\n".join(turn.text for turn in self.turns if turn.role == "user")

    @property
    def key(self) -> str:
        return key_in(self.text)

    @cached_property
    def results(self) -> dict[str, str]:
        """By id of the call."""
        return {turn.id: turn.text for turn in self.turns if turn.role == "tool"}

    def calls(self) -> Iterator[tuple[str, Use]]:
        """All that the assistant wanted to be done so far, with the ids; not its answers."""
        for turn in self.turns:
            for one, use in zip(turn.ids, turn.uses, strict=True):
                if use[0] != OUTPUT_TOOL:
                    yield one, use

    @property
    def answers(self) -> int:
        """How often the assistant has already given its final answer, in this conversation."""
        last = [turn for turn in self.turns if turn.role == "assistant"]
        return sum(not turn.uses or any(name == OUTPUT_TOOL for name, _ in turn.uses) for turn in last)

    @cached_property
    def fingerprint(self) -> str:
        return _hash(self.turns)

    @cached_property
    def goes_on_from(self) -> frozenset[str]:
        """The fingerprints of the conversations whose answer this one has in it."""
        return frozenset(_hash(self.turns[:n]) for n, turn in enumerate(self.turns) if turn.role == "assistant")

    @cached_property
    def used(self) -> frozenset[Use]:
        """The uses of tools whose results it has in it."""
        return frozenset(use for one, use in self.calls() if one in self.results)


def _hash(turns: Iterable[Turn]) -> str:
    # Results of calls side by side may come in any order, and each says which call it is of.
    said: list[list[Any]] = []
    for turn in turns:
        one = [turn.role, turn.text, *turn.uses]
        if turn.role == "tool" and said and said[-1][0] == "tool":
            said[-1] = ["tool", *sorted([*said[-1][1:], turn.text])]
        else:
            said.append(["tool", turn.text] if turn.role == "tool" else one)
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def of_chat(body: dict[str, Any]) -> Conversation:
    turns = []
    for one in body["messages"]:
        text = _text_of(one.get("content"))
        if one["role"] == "user":
            turns.append(Turn("user", text))
        elif one["role"] == "tool":
            turns.append(Turn("tool", text, id=one["tool_call_id"]))
        elif one["role"] == "assistant":
            called = one.get("tool_calls") or []
            uses = tuple(use_of(call["function"]["name"], call["function"]["arguments"]) for call in called)
            turns.append(Turn("assistant", text, uses, ids=tuple(call["id"] for call in called)))
    tools = {one["function"]["name"]: one["function"].get("parameters") or {} for one in body.get("tools") or []}
    wanted = (body.get("response_format") or {}).get("json_schema")
    return Conversation(tuple(turns), tools, wanted["schema"] if wanted else None)


def of_responses(body: dict[str, Any]) -> Conversation:
    given = body["input"]
    turns: list[Turn] = []
    for one in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind, role = one.get("type", "message"), one.get("role")
        if kind == "function_call_output":
            turns.append(Turn("tool", _text_of(one["output"]), id=one["call_id"]))
        elif kind == "function_call":
            _add(turns, Turn("assistant", "", (use_of(one["name"], one["arguments"]),), ids=(one["call_id"],)))
        elif kind == "message" and role == "user":
            turns.append(Turn("user", _text_of(one["content"])))
        elif kind == "message" and role == "assistant":
            _add(turns, Turn("assistant", _text_of(one["content"])))
    tools = {one["name"]: one.get("parameters") or {} for one in body.get("tools") or [] if one["type"] == "function"}
    wanted = (body.get("text") or {}).get("format") or {}
    return Conversation(tuple(turns), tools, wanted["schema"] if wanted.get("type") == "json_schema" else None)


def _add(turns: list[Turn], more: Turn) -> None:
    """The parts of one answer are items of their own, one after the other."""
    if turns and turns[-1].role == "assistant":
        last = turns.pop()
        more = Turn("assistant", last.text + more.text, last.uses + more.uses, ids=last.ids + more.ids)
    turns.append(more)


def _text_of(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part["text"] for part in content if "text" in part)

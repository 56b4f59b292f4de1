"""Interrupts as questions to a person, and answers as what `interrupt()` returns.

| the interrupt's value | question | details |
|---|---|---|
| text | the text | none |
| an object | its `question`, `message`, `prompt` or `description` | the rest of it |
| a request of LangChain's HumanInTheLoopMiddleware | Approve send_mail? | the arguments of the call, or of each call |
| anything else | Continue? | `value` |

| the answer | what `interrupt()` returns |
|---|---|
| to a request of the middleware | approve, edit if the arguments were changed, or reject with the words |
| with the detail `resume`, if the question has it | that; after a no only if it was changed |
| no | False |
| with changed details | the details |
| with words | the words |
| yes | True |

A no with words is False, not the words: `if interrupt("Send it?")` must not take a refusal for a yes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.types import Interrupt

from agentrun.agents.messages import Answer
from agentrun.frameworks.langgraph.shapes import plain
from agentrun.frameworks.langgraph.views import called

TEXTS = ("question", "message", "prompt", "description")
RESUME, SCHEMA = "resume", "resume_schema"
APPROVAL = "tool_approval"
WORDS_OF_THE_MIDDLEWARE = "Tool execution requires approval"
EVERY_DECISION = ("approve", "edit", "reject", "respond")


class DoesNotFit(ValueError):
    """An answer that the graph would not take: the person is asked again."""


@dataclass(frozen=True)
class AskedQuestion:
    """A question to a person, and how an answer to it becomes a value for the graph, or raises DoesNotFit."""

    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
    resume: Callable[[Answer], Any] = bool


def question_of(interrupt: Interrupt[Any]) -> AskedQuestion:
    value = plain(interrupt.value)
    if isinstance(value, dict) and isinstance(value.get("action_requests"), list):
        return _of_requests(value["action_requests"], value.get("review_configs"))
    if isinstance(value, dict) and value.get("type") == APPROVAL and isinstance(value.get("args"), dict):
        return _of_approval(value, _allowed_by(interrupt.response_schema))
    text, details = "Continue?", {"value": value}
    if isinstance(value, str):
        text, details = value, {}
    elif isinstance(value, dict):
        named = next((name for name in TEXTS if isinstance(value.get(name), str) and value[name].strip()), None)
        text, details = value.get(named, text), {name: part for name, part in value.items() if name != named}
    if interrupt.response_schema is not None:
        details = {**details, RESUME: details.get(RESUME), SCHEMA: plain(interrupt.response_schema)}
    return AskedQuestion(text.strip() or "Continue?", details, lambda answer: _value(answer, details))


def _value(answer: Answer, details: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in answer.details.items() if name not in (RESUME, SCHEMA)}
    asked = {name: value for name, value in details.items() if name not in (RESUME, SCHEMA)}
    resume = answer.details.get(RESUME)
    if resume is not None and (answer.yes or resume != details.get(RESUME)):
        return resume
    if not answer.yes:
        return False
    if given != asked:
        return given
    return answer.text or True


# ---- LangChain's HumanInTheLoopMiddleware


def _of_requests(requests: list[Mapping[str, Any]], configs: Any) -> AskedQuestion:
    """All calls of a model's turn that need approval, in one question."""
    names = [str(request["name"]) for request in requests]
    allowed = {one["action_name"]: tuple(one["allowed_decisions"]) for one in configs or []}
    arguments = [dict(request.get("args") or {}) for request in requests]
    labels = [f"{number} {name}" for number, name in enumerate(names, 1)]
    details = arguments[0] if len(requests) == 1 else dict(zip(labels, arguments, strict=True))
    text = f"Approve {', '.join(names)}?" + "".join(_described(request) for request in requests)

    def resume(answer: Answer) -> Any:
        given = [answer.details] if len(requests) == 1 else [answer.details.get(label) for label in labels]
        return {
            "decisions": [
                _decision(answer, name, asked, now, allowed.get(name, EVERY_DECISION))
                for name, asked, now in zip(names, arguments, given, strict=True)
            ]
        }

    return AskedQuestion(text, details, resume)


def _of_approval(request: Mapping[str, Any], allowed: tuple[str, ...]) -> AskedQuestion:
    """One call, in the middleware's mode that asks for each."""
    name, arguments = str(request["name"]), dict(request["args"])
    text = f"Approve {called(name, {}) if not arguments else name}?" + _described(request)
    return AskedQuestion(text, arguments, lambda answer: _decision(answer, name, arguments, answer.details, allowed))


def _described(request: Mapping[str, Any]) -> str:
    """The description without the call, which the details show; nothing if only the middleware's own words are left."""
    said = str(request.get("description") or "").partition("\n\nTool: ")[0].strip()
    return f"\n{said}" if said and said != WORDS_OF_THE_MIDDLEWARE else ""


def _decision(answer: Answer, name: str, asked: Any, given: Any, allowed: tuple[str, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "reject"}
    if answer.yes and given != asked:
        made = {"type": "edit", "edited_action": {"name": name, "args": given}}
    elif answer.yes and "approve" in allowed:
        made = {"type": "approve"}
    elif "respond" in allowed and (answer.yes or "reject" not in allowed):
        # The person answers in place of the tool.
        made = {"type": "respond", "message": answer.text or ("yes" if answer.yes else "no")}
    elif answer.text:
        made["message"] = answer.text
    if (answer.yes and made["type"] == "reject") or made["type"] not in allowed:
        raise DoesNotFit(f"{name} allows {', '.join(allowed)}")
    return made


def _allowed_by(schema: Any) -> tuple[str, ...]:
    """The decisions that a response schema has: each is an object whose `type` is a constant."""
    found: list[str] = []

    def look(part: Any) -> None:
        if isinstance(part, list):
            for one in part:
                look(one)
        elif isinstance(part, dict):
            kind = part.get("properties", {}).get("type") if isinstance(part.get("properties"), dict) else None
            if isinstance(kind, dict) and isinstance(kind.get("const"), str):
                found.append(kind["const"])
            for one in part.values():
                look(one)

    look(schema)
    return tuple(found) or EVERY_DECISION

"""The forms of the desk: a question, a reply to it, what can be edited, and what was posted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from msgspec import to_builtins

from agentrun.checkpoint.record import Question
from agentrun.store.port import Holder
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView, StepView


@dataclass(frozen=True, slots=True)
class Posting:
    """What was posted, and who will process it."""

    items: tuple[ItemView, ...] = ()
    """The items that messages were posted about."""
    holder: Holder | None = None
    """The runner at work, if there is one."""
    is_unfinished: bool = True
    """Whether the run can be resumed; else the messages open the finished run again."""
    waits_for_launch: bool = False
    """Whether a runner at work leaves it for the next launch."""
    completes: bool = False
    """Whether nothing is left to run: the launch that processes it completes the run."""
    already_answered: int = 0
    """How many questions had an answer already, not processed yet; the first answer wins."""
    ignored: tuple[ItemView, ...] = ()
    """The items that were answered but do not wait, or no longer; one for each such reply."""

    def as_json(self) -> dict[str, Any]:
        return {
            "items": [_named(view) for view in self.items],
            "holder": asdict(self.holder) if self.holder is not None else None,
            "is_unfinished": self.is_unfinished,
            "waits_for_launch": self.waits_for_launch,
            "completes": self.completes,
            "already_answered": self.already_answered,
            "ignored": [_named(view) for view in self.ignored],
        }


def _named(view: ItemView) -> dict[str, Any]:
    return {"index": view.index, "key": view.key, "state": view.state}


@dataclass(frozen=True, slots=True)
class QuestionView:
    """An item that waits for a person."""

    index: int
    key: str
    gen: int
    question: Question
    steps: tuple[StepView, ...] = ()
    is_answered: bool = False
    """Whether an answer is posted that no runner has processed yet."""

    def as_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "key": self.key,
            "generation": self.gen,
            "question": self.question.n,
            "text": self.question.text,
            "details": to_builtins(self.question.details),
            "at": self.question.at or None,
            "steps": [one.as_output() for one in self.steps if one.kind == "step"],
            "answered": self.is_answered,
        }


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """An answer to the question of one item."""

    key: str
    """Its key, or a path that leads to its file."""
    yes: bool
    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The details that the person changed."""
    is_typed: bool = False
    """Whether the details are text from a form or a table: JSON, unless the question's own detail is text."""
    where: str = ""
    """Where it was read, such as `answers.csv:3`; errors about it begin with that."""


@dataclass(frozen=True, slots=True)
class Editable:
    """An output, or the carry after an item, as it is now."""

    known: KnownJob
    view: ItemView
    run_id: str
    value: Any
    is_carry: bool = False

    @property
    def name(self) -> str:
        return f"the carry after {self.view.key}" if self.is_carry else self.view.key

    def as_json(self) -> dict[str, Any]:
        return {
            "job": self.known.name,
            "run_id": self.run_id,
            "index": self.view.index,
            "key": self.view.key,
            "generation": self.view.gen,
            "name": self.name,
            "is_carry": self.is_carry,
            "value": self.value,
        }

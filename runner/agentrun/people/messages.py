"""Messages for a run's inbox, made from an item as it stands."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from agentrun.checkpoint.message import (
    VERSION,
    AnswerMessage,
    AnyMessage,
    EditMessage,
    RedoMessage,
    Reply,
    SkipMessage,
    json_text,
)
from agentrun.errors import UsageError
from agentrun.store.port import Posted
from agentrun.values.clock import now_text
from agentrun.values.json import parse_value
from agentrun.views.item import ItemView

QuestionId = tuple[str, int, int]
"""A question by its item's key and generation, and its number."""


class _Heading(TypedDict):
    version: int
    id: str
    run_id: str
    key: str
    gen: int
    by: str
    at: str


def answer_message(
    view: ItemView, run_id: str, *, yes: bool, text: str = "", details: Mapping[str, Any] | None = None, by: str
) -> AnswerMessage:
    """Answers the question that the item waits with. `details` are those that were edited."""
    question = view.question
    if question is None:
        raise UsageError(f"{view.key}: {why_not_waiting(view)}")
    for name in details or {}:
        if name not in question.details:
            has = f"it has {', '.join(question.details)}" if question.details else "it has none"
            raise UsageError(f"{view.key}: its question has no detail {name[:100]}; {has}")
    reply = Reply(yes=yes, text=text, details=dict(details or {}))
    return AnswerMessage(**_heading(view, run_id, by), question=question.n, answer=reply)


def typed_details(view: ItemView, details: Mapping[str, str]) -> dict[str, Any]:
    """Details as they were typed into a form or a table: JSON, unless the question's own detail is text."""
    asked = view.question.details if view.question is not None else {}
    found: dict[str, Any] = {}
    for name, text in details.items():
        try:
            found[name] = text if isinstance(asked.get(name, ""), str) else parse_value(text)
        except ValueError as error:
            raise UsageError(f"{view.key}: {name[:100]} is {error}") from None
    return found


def why_not_waiting(view: ItemView) -> str:
    more = {
        "pending": "; the next launch runs it, or it has its answer already",
        "running": "; it may ask later",
        "failed": "; run it again with redo",
        "done": "; run it again with redo",
        "skipped": "; run it again with redo",
    }
    return f"is {view.state}, not waiting for an answer{more.get(view.state, '')}"


def redo_message(
    view: ItemView, run_id: str, *, keep_before: str | None = None, now: bool = False, by: str
) -> RedoMessage:
    """Starts the item over; with `keep_before`, the steps before that one are kept."""
    return RedoMessage(**_heading(view, run_id, by), keep_before=keep_before, now=now)


def edit_message(view: ItemView, run_id: str, *, output: Any, by: str) -> EditMessage:
    """Corrects the output of an item that is done."""
    return EditMessage(**_heading(view, run_id, by), seq=_seq(view), output=json_text(output, name="output"))


def carry_message(view: ItemView, run_id: str, *, carry: Any, by: str) -> EditMessage:
    """Corrects what the next item gets from an item that is done."""
    return EditMessage(**_heading(view, run_id, by), seq=_seq(view), carry=json_text(carry, name="carry"))


def skip_message(view: ItemView, run_id: str, *, reason: str = "", by: str) -> SkipMessage:
    """Settles an item without a result."""
    return SkipMessage(**_heading(view, run_id, by), reason=reason)


def _heading(view: ItemView, run_id: str, by: str) -> _Heading:
    return {
        "version": VERSION,
        "id": secrets.token_hex(8),
        "run_id": run_id,
        "key": view.key,
        "gen": view.gen,
        "by": by,
        "at": now_text(),
    }


def _seq(view: ItemView) -> int:
    if view.state != "done" or view.record is None:
        raise UsageError(f"{view.key}: is {view.state}, and has no result to edit")
    return view.record.seq


def answered(posted: Iterable[Posted]) -> dict[QuestionId, AnyMessage]:
    """The first answer to each question among what was posted: that one wins."""
    found: dict[QuestionId, AnyMessage] = {}
    for one in posted:
        if isinstance(message := one.message, AnswerMessage):
            found.setdefault((message.key, message.gen, message.question), message)
    return found


def posted_kinds(posted: Iterable[Posted]) -> dict[str, str]:
    """By the key of their item: the kind of the last message among what was posted."""
    return {one.message.key: one.message.kind for one in posted if one.message is not None}


def is_answer_to(posted: Posted, view: ItemView) -> bool:
    """Whether it answers the question that the item waits with."""
    message = posted.message
    return isinstance(message, AnswerMessage) and (message.key, message.gen, message.question) == question_of(view)


def person() -> str:
    """Who is at the keyboard, as the system knows them."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def question_of(view: ItemView) -> QuestionId:
    """What `answered` knows the item's question by."""
    return (view.key, view.gen, view.question.n if view.question is not None else 1)

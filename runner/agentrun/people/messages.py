"""What people tell a run: messages for its inbox, made from an item as it stands, and posted without the lock."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.checkpoint.message import VERSION, MessageError
from agentrun.errors import UsageError
from agentrun.values.clock import now_text

if TYPE_CHECKING:
    from agentrun.store.folder.inbox import Inbox
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing


Message = dict[str, Any]


def person() -> str:
    """Who is at the keyboard, as the system knows them."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def run_of(listing: Listing, name: str) -> str:
    """The run that a message is for: the unfinished one, or the last that ended."""
    if listing.checkpoint is not None:
        return listing.checkpoint.run_id
    if listing.summary is not None:
        return str(listing.summary["run_id"])
    raise UsageError(f"{name}: has no run yet; begin one with: agentrun start {name}")


def answer_message(
    view: ItemView,
    run_id: str,
    *,
    yes: bool,
    text: str = "",
    details: Mapping[str, Any] | None = None,
    by: str,
) -> Message:
    """Answers the question that the item waits with. `details` are those that were edited."""
    question = view.question
    if question is None:
        raise UsageError(f"{view.key}: {why_not_waiting(view)}")
    known = question.get("details") or {}
    for name in details or {}:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"{view.key}: its question has no detail {name}; {has}")
    answer = {"yes": yes, "text": text, "details": dict(details or {})}
    return {**_message("answer", view, run_id, by), "question": question.get("n", 1), "answer": answer}


def why_not_waiting(view: ItemView) -> str:
    more = {
        "pending": "; it is run by the next launch, or has its answer already",
        "running": "; it may ask when it gets there",
        "failed": "; redo begins it anew",
        "done": "; redo begins it anew",
        "skipped": "; redo begins it anew",
    }
    return f"is {view.state}, not waiting for an answer{more.get(view.state, '')}"


def redo_message(view: ItemView, run_id: str, *, keep_before: str | None = None, now: bool = False, by: str) -> Message:
    """Begins the item anew; with `keep_before`, the steps before that one are kept."""
    return {**_message("redo", view, run_id, by), "keep_before": keep_before, "now": now}


def edit_message(view: ItemView, run_id: str, *, output: Any, by: str) -> Message:
    """Corrects the output of an item that is done."""
    return {**_message("edit", view, run_id, by), "seq": _seq(view), "output": output}


def carry_message(view: ItemView, run_id: str, *, carry: Any, by: str) -> Message:
    """Corrects what is carried on from an item that is done."""
    return {**_message("edit", view, run_id, by), "seq": _seq(view), "carry": carry}


def skip_message(view: ItemView, run_id: str, *, reason: str = "", by: str) -> Message:
    """Settles an item without a result."""
    return {**_message("skip", view, run_id, by), "reason": reason}


def _message(kind: str, view: ItemView, run_id: str, by: str) -> Message:
    return {
        "version": VERSION,
        "id": secrets.token_hex(8),
        "kind": kind,
        "run_id": run_id,
        "key": view.key,
        "gen": view.gen,
        "by": by,
        "at": now_text(),
    }


def _seq(view: ItemView) -> int:
    if view.state != "done" or view.record is None:
        raise UsageError(f"{view.key}: is {view.state}, and has no result to edit")
    return int(view.record["seq"])


def post(folder: Path, messages: Sequence[Message]) -> None:
    """Durably, into the inbox of the job in `folder`."""
    try:
        open_inbox(folder).post(messages)
    except MessageError as error:
        raise UsageError(f"{folder.name}: that cannot be posted: {error}") from None


def posted(folder: Path) -> list[Message]:
    """What lies in the inbox and was not taken in yet."""
    return messages_in(open_inbox(folder))


def open_inbox(folder: Path) -> Inbox:
    """To look into it more than once: what was read before is not read again."""
    from agentrun.store.folder.inbox import Inbox
    from agentrun.system.disk import Disk

    return Inbox(folder, Disk())


def messages_in(inbox: Inbox) -> list[Message]:
    return [one.message for one in inbox.messages() if one.message is not None]


def answered(messages: Iterable[Message]) -> dict[tuple[str, int, int], Message]:
    """The first answer to each question among `messages`, by key, generation and question: that one wins."""
    found: dict[tuple[str, int, int], Message] = {}
    for message in messages:
        if message["kind"] == "answer":
            found.setdefault((message["key"], message["gen"], message["question"]), message)
    return found


def question_of(view: ItemView) -> tuple[str, int, int]:
    """What `answered` knows the item's question by."""
    return (view.key, view.gen, (view.question or {}).get("n", 1))

"""The desk: what people tell a run. Questions, answers, redo, edit and skip, for every kind of front end.

Each function takes a job and a selection of its items, posts messages to the job's inbox without the lock, and returns
what was posted. A runner at work processes them within two seconds; otherwise the next launch does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import to_builtins

from agentrun.checkpoint.message import AnyMessage, MessageError
from agentrun.checkpoint.record import Question
from agentrun.errors import ItemsError, LaterError, UsageError
from agentrun.people.messages import (
    answer_message,
    answered,
    carry_message,
    edit_message,
    question_of,
    redo_message,
    skip_message,
)
from agentrun.people.selecting import Selection, find_item, select, select_one, words_for
from agentrun.store.port import Holder
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView, StepView
from agentrun.views.listing import Listing, open_listing

__all__ = [
    "Editable",
    "Posting",
    "QuestionView",
    "ReplyTo",
    "Selection",
    "answer",
    "answer_all",
    "answer_each",
    "edit",
    "is_answered",
    "open_items",
    "person",
    "questions",
    "redo",
    "skip",
    "to_edit",
]


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
            "steps": [{"name": one.name, "output": one.output} for one in self.steps if one.kind == "step"],
            "answered": self.is_answered,
        }


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """An answer to the question of one item."""

    key: str
    yes: bool
    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The details that the person changed."""


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


def person() -> str:
    """Who is at the keyboard, as the system knows them."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def open_items(known: KnownJob, *, warn: Callable[[str], None] = lambda text: None) -> Listing:
    """The job's items. If its source cannot be read, `warn` is told, and they are those on record."""
    try:
        listing = open_listing(known.store, known.job)
    except (ItemsError, LaterError) as error:
        with known.store.reader() as reader:
            if not reader.run_id:
                raise
        warn(f"{error.message}; showing only what is on record")
        listing = open_listing(known.store)
    if listing.note:
        warn(f"{known.name}: {listing.note}")
    return listing


# ---- questions and answers


def questions(known: KnownJob, listing: Listing | None = None) -> Iterator[QuestionView]:
    """The items that wait for a person, in item order."""
    shown = listing if listing is not None else open_items(known)
    try:
        before = answered(known.store.inbox())
        for view in shown.items({"waiting"}):
            if view.question is not None:
                steps, is_answered = tuple(shown.steps(view)), question_of(view) in before
                yield QuestionView(view.index, view.key, view.gen, view.question, steps, is_answered)
    finally:
        if listing is None:
            shown.close()


def is_answered(known: KnownJob, question: QuestionView) -> bool:
    """Whether an answer is posted by now."""
    return (question.key, question.gen, question.question.n) in answered(known.store.inbox())


def answer(
    known: KnownJob,
    selection: Selection,
    *,
    yes: bool,
    text: str = "",
    details: Mapping[str, Any] | None = None,
    by: str = "",
) -> Posting:
    """Answer the question of one item."""
    with open_items(known) as listing:
        view = select_one(known, listing, selection)
        said = [(view, ReplyTo(view.key, yes, text, details or {}))]
        return _post_answers(known, listing, said, by, is_one=True)


def answer_all(known: KnownJob, *, yes: bool, text: str = "", by: str = "") -> Posting:
    """Answer all items that wait, in the same way."""
    with open_items(known) as listing:
        said = [(view, ReplyTo(view.key, yes, text)) for view in listing.items({"waiting"})]
        return _post_answers(known, listing, said, by)


def answer_each(known: KnownJob, replies: Sequence[ReplyTo], *, by: str = "") -> Posting:
    """Answer several items, each in its own way."""
    with open_items(known) as listing:
        said = [(find_item(known, listing, reply.key), reply) for reply in replies]
        return _post_answers(known, listing, said, by)


def _post_answers(
    known: KnownJob, listing: Listing, said: Sequence[tuple[ItemView, ReplyTo]], by: str, *, is_one: bool = False
) -> Posting:
    run_id, before = _run_of(known, listing), answered(known.store.inbox())
    new = [(view, reply) for view, reply in said if question_of(view) not in before]
    if is_one and not new:
        raise UsageError(f"{known.name}: this question has an answer that is not processed yet; the first answer wins")
    if not new:
        raise UsageError(f"{known.name}: {'nothing new to answer' if said else 'no items are waiting for an answer'}")
    messages = [
        answer_message(view, run_id, yes=one.yes, text=one.text, details=one.details, by=by or person())
        for view, one in new
    ]
    posting = _post(known, [view for view, _ in new], messages)
    return replace(posting, already_answered=len(said) - len(new))


# ---- redo


def redo(
    known: KnownJob,
    selection: Selection,
    *,
    keep_before: str | None = None,
    now: bool = False,
    by: str = "",
    agree: Callable[[Sequence[ItemView]], bool] = lambda items: True,
) -> Posting:
    """Start items over; the results they have are given up.

    With `keep_before`, the steps before that one are kept. With `now`, a runner at work does it at once. `agree` is
    asked before anything is posted, with the items; if it says no, nothing is.
    """
    if selection.is_by_name == selection.is_by_rule:
        raise UsageError("which items? Give keys or --index N; or --failed, --cause, --agent-version, --from")
    with open_items(known) as listing:
        run_id, is_named = _run_of(known, listing), selection.is_by_name
        # Not the records: there may be very many.
        views = [
            replace(view, record=None)
            for view in select(known, listing, selection)
            if _can_start_over(known, listing, view, is_named=is_named)
        ]
        if not views:
            raise UsageError(f"{known.name}: no items match; see: agentrun items {known.shown}")
        if keep_before is not None:
            _check_steps(known, listing, views, keep_before)
        if not agree(views):
            return Posting(is_unfinished=listing.is_unfinished)
        by = by or person()
        messages = [redo_message(view, run_id, keep_before=keep_before, now=now, by=by) for view in views]
        return replace(_post(known, views, messages), waits_for_launch=not now)


def _can_start_over(known: KnownJob, listing: Listing, view: ItemView, *, is_named: bool) -> bool:
    if view.state != "pending" or listing.has_steps(view):
        return True
    if is_named:
        raise UsageError(f"{known.name}: {view.key} is pending; the next launch runs it anyway")
    return False


def _check_steps(known: KnownJob, listing: Listing, views: Sequence[ItemView], name: str) -> None:
    found = listing.step_names(views)
    if any(name in names for names in found.values()):
        return
    names = list(dict.fromkeys(name for names in found.values() for name in names))
    has = f"they have {', '.join(names[:10])}" if names else "they have no steps on record; leave out --steps"
    raise UsageError(f"{known.name}: none of them has a step {name}; {has}")


# ---- edit


def to_edit(known: KnownJob, selection: Selection | None = None) -> Editable:
    """The output of one item to correct; without a selection, the carry that the next item would get."""
    with open_items(known) as listing:
        run_id = _run_of(known, listing)
        view = _last_settled(known, listing) if selection is None else select_one(known, listing, selection)
    _check_done(known, view)
    assert view.record is not None
    value = view.record.carry if selection is None else view.output
    return Editable(known, view, run_id, value, is_carry=selection is None)


def edit(editable: Editable, value: Any, *, by: str = "") -> Posting:
    """Correct an output, or the carry, by hand. It is kept, and marked as edited, also if its item changes."""
    known, view, run_id, by = editable.known, editable.view, editable.run_id, by or person()
    with _refusing(known):
        if editable.is_carry:
            message = carry_message(view, run_id, carry=value, by=by)
        else:
            message = edit_message(view, run_id, output=value, by=by)
    return replace(_post(known, [editable.view], [message]), waits_for_launch=editable.is_carry)


def _check_done(known: KnownJob, view: ItemView) -> None:
    if view.state == "done":
        return
    command = f"{known.shown} {words_for(view)}"
    what = {
        "waiting": f"answer it with: agentrun answer {command}",
        "failed": f"run it again with: agentrun redo {command}; or settle it with: agentrun skip {command}",
        "skipped": f"run it again with: agentrun redo {command}",
    }.get(view.state, "edit it once it is done")
    raise UsageError(f"{known.name}: {view.key} is {view.state} and has no output to edit; {what}")


def _last_settled(known: KnownJob, listing: Listing) -> ItemView:
    """The item that the next one gets its carry from."""
    last = None
    if known.job is not None and not known.job.carry:
        raise UsageError(f"{known.name}: this job has no carry; that needs carry = true in the job file")
    for view in listing.items():
        if view.state not in ("done", "failed", "skipped"):
            break
        last = view
    if last is None:
        raise UsageError(f"{known.name}: no item is settled yet, so there is no carry")
    return last


# ---- skip


def skip(known: KnownJob, selection: Selection, *, reason: str = "", by: str = "") -> Posting:
    """Settle items without a result; a run completes without them."""
    if selection.is_by_name == selection.is_by_rule:
        raise UsageError("which items? Give their keys or --index N, or --failed, or --cause TEXT")
    with open_items(known) as listing:
        run_id, views = _run_of(known, listing), list(select(known, listing, selection))
        for view in views:
            if view.state == "done":
                command = f"agentrun redo {known.shown} {words_for(view)}"
                raise UsageError(f"{known.name}: {view.key} is done; it has a result; to discard it: {command}")
            if view.state == "skipped":
                raise UsageError(f"{known.name}: {view.key} is skipped; nothing to do")
        if not views:
            such = f" with {selection.cause}" if selection.cause is not None else ""
            raise UsageError(f"{known.name}: no items have failed{such}; see: agentrun failures {known.shown}")
        by = by or person()
        messages = [skip_message(view, run_id, reason=reason, by=by) for view in views]
        posting = _post(known, views, messages)
        return replace(posting, completes=_completes(known, listing, views))


def _completes(known: KnownJob, listing: Listing, views: Sequence[ItemView]) -> bool:
    """Whether these were the last items that kept the run from completing."""
    left = Counter(listing.counts)
    left.subtract(view.state for view in views)
    allowed = known.job.allow_failures.of(len(listing)) if known.job is not None else 0
    return listing.is_unfinished and not left["pending"] + left["waiting"] and left["failed"] <= allowed


# ---- posting


def _run_of(known: KnownJob, listing: Listing) -> str:
    """The run that a message is for: the unfinished one, or the last that ended."""
    if not listing.reader.run_id:
        raise UsageError(f"{known.name}: has no run yet; start one with: agentrun start {known.shown}")
    return listing.reader.run_id


def _post(known: KnownJob, views: Sequence[ItemView], messages: Sequence[AnyMessage]) -> Posting:
    with _refusing(known):
        known.store.post(messages)
    with known.store.reader() as reader:
        return Posting(tuple(views), holder=reader.holder(), is_unfinished=reader.checkpoint is not None)


@contextmanager
def _refusing(known: KnownJob) -> Iterator[None]:
    """What no message can hold is the person's mistake."""
    try:
        yield
    except MessageError as error:
        raise UsageError(f"{known.name}: that cannot be posted: {error}") from None

"""The desk: what people tell a run. Questions, answers, redo, edit and skip, for every kind of front end.

Each function takes a job and a selection of its items, posts messages to the job's inbox without the lock, and returns
what was posted. A runner at work processes them within two seconds; otherwise the next launch does. `warn` is told what
the caller should know about the items, before anything is posted and also if nothing is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from agentrun.checkpoint.message import AnswerMessage, AnyMessage, MessageError
from agentrun.errors import ItemsError, LaterError, UsageError
from agentrun.people.forms import Editable, Posting, QuestionView, ReplyTo
from agentrun.people.messages import (
    answer_message,
    answered,
    carry_message,
    edit_message,
    is_answer_to,
    person,
    question_of,
    redo_message,
    skip_message,
    typed_details,
)
from agentrun.people.selecting import Selection, find_item, select, select_one, words_for
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
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
    "take_back",
    "to_edit",
]


Warn = Callable[[str], None]


def _unheard(text: str) -> None:
    """For callers who do not listen to warnings."""


def open_items(known: KnownJob, *, warn: Warn = _unheard) -> Listing:
    """The job's items. If its source cannot be read, `warn` is told, and only the items on record are there."""
    try:
        listing = open_listing(known.store, known.job)
    except (ItemsError, LaterError) as error:
        with known.store.reader() as reader:
            if not reader.run_id:
                raise
        warn(f"{error.message}; using only what is on record")
        listing = open_listing(known.store)
    if listing.note:
        warn(f"{known.name}: {listing.note}")
    return listing


# ---- questions and answers


def questions(known: KnownJob, listing: Listing | None = None, *, warn: Warn = _unheard) -> Iterator[QuestionView]:
    """The items that wait for a person, in item order."""
    shown = listing if listing is not None else open_items(known, warn=warn)
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
    warn: Warn = _unheard,
) -> Posting:
    """Answer the question of one item."""
    with open_items(known, warn=warn) as listing:
        run_id, view = _run_of(known, listing), select_one(known, listing, selection)
    if question_of(view) in answered(known.store.inbox()):
        raise UsageError(f"{known.name}: this question has an answer that is not processed yet; the first answer wins")
    return _post_answers(known, run_id, [(view, ReplyTo(view.key, yes, text, details or {}))], by)


def answer_all(known: KnownJob, *, yes: bool, text: str = "", by: str = "", warn: Warn = _unheard) -> Posting:
    """Answer all items that wait, in the same way."""
    with open_items(known, warn=warn) as listing:
        run_id = _run_of(known, listing)
        said = [(view, ReplyTo(view.key, yes, text)) for view in listing.items({"waiting"})]
    if not said:
        raise UsageError(f"{known.name}: no items are waiting for an answer")
    return _post_answers(known, run_id, said, by)


def answer_each(
    known: KnownJob,
    replies: Sequence[ReplyTo],
    *,
    by: str = "",
    here: Path | None = None,
    warn: Warn = _unheard,
) -> Posting:
    """Answer several items, each in its own way. Paths are relative to `here`.

    Replies to items that do not wait, or no longer, are ignored and named in the posting. Two replies to one item, and
    items and details that do not exist, are errors: then nothing is posted.
    """
    if not replies:
        raise UsageError(f"{known.name}: there are no answers to post")
    with open_items(known, warn=warn) as listing:
        run_id, found = _run_of(known, listing), []
        for reply in replies:
            with _naming(reply.where):
                found.append((find_item(known, listing, reply.key, here=here), reply))
    said = [(view, reply) for view, reply in found if view.question is not None]
    ignored = [view for view, _ in found if view.question is None]
    if not said:
        which = f"see which are with: agentrun review {known.shown} --list"
        raise UsageError(
            f"{known.name}: none of these items, such as {ignored[0].key}, is waiting for an answer; {which}"
        )
    _refuse_second_replies(known, said)
    return replace(_post_answers(known, run_id, said, by), ignored=tuple(ignored))


def _refuse_second_replies(known: KnownJob, said: Sequence[tuple[ItemView, ReplyTo]]) -> None:
    first: dict[str, ReplyTo] = {}
    for view, reply in said:
        before = first.setdefault(view.key, reply)
        if before is not reply:
            where, other = reply.where or known.name, f" (the first: {before.where})" if before.where else ""
            raise UsageError(f"{where}: answers {view.key} a second time{other}; keep one of the two answers")


def _post_answers(known: KnownJob, run_id: str, said: Sequence[tuple[ItemView, ReplyTo]], by: str) -> Posting:
    before, by = answered(known.store.inbox()), by or person()
    # All are checked, also those that have an answer already.
    messages = [(view, _answer_of(view, reply, run_id, by)) for view, reply in said]
    new = [(view, message) for view, message in messages if question_of(view) not in before]
    if not new:
        raise UsageError(f"{known.name}: nothing new to answer")
    posting = _post(known, [view for view, _ in new], [message for _, message in new])
    return replace(posting, already_answered=len(said) - len(new))


def _answer_of(view: ItemView, reply: ReplyTo, run_id: str, by: str) -> AnswerMessage:
    with _naming(reply.where):
        details = typed_details(view, reply.details) if reply.is_typed else reply.details
        return answer_message(view, run_id, yes=reply.yes, text=reply.text, details=details, by=by)


def take_back(known: KnownJob, selection: Selection, *, warn: Warn = _unheard) -> ItemView:
    """Take back the answer that was posted to the question of one item; UsageError if a runner has it already."""
    with open_items(known, warn=warn) as listing:
        view = select_one(known, listing, selection)
        was_answered = any(step.kind == "answer" for step in listing.steps(view))
    posted = [one.name for one in known.store.inbox() if is_answer_to(one, view)]
    # The first one counts, and the others would after it.
    if posted and all(known.store.withdraw(name) for name in posted):
        return view
    command = f"agentrun redo {known.shown} {words_for(view.key, view.index)}"
    if posted or (was_answered and view.question is None):
        raise UsageError(
            f"{known.name}: a runner has already processed the answer to {view.key}; to start the item over: {command}"
        )
    raise UsageError(f"{known.name}: no answer to {view.key} is posted; there is nothing to take back")


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Errors begin with the place that they are about, if it is known."""
    try:
        yield
    except UsageError as error:
        if not where:
            raise
        raise UsageError(f"{where}: {error.message}") from None


# ---- redo


def redo(
    known: KnownJob,
    selection: Selection,
    *,
    keep_before: str | None = None,
    now: bool = False,
    by: str = "",
    agree: Callable[[Sequence[ItemView]], bool] = lambda items: True,
    warn: Warn = _unheard,
) -> Posting:
    """Start items over; the results they have are given up.

    With `keep_before`, the steps before that one are kept. With `now`, a runner at work does it at once. `agree` is
    asked before anything is posted, with the items; if it says no, nothing is.
    """
    if selection.is_by_name == selection.is_by_rule:
        raise UsageError("which items? Give keys or --index N; or --failed, --cause, --agent-version, --from")
    with open_items(known, warn=warn) as listing:
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


def to_edit(known: KnownJob, selection: Selection | None = None, *, warn: Warn = _unheard) -> Editable:
    """The output of one item to correct; without a selection, the carry that the next item would get."""
    with open_items(known, warn=warn) as listing:
        run_id = _run_of(known, listing)
        view = _last_settled(known, listing) if selection is None else select_one(known, listing, selection)
    if selection is None:
        _check_carry(known, view)
    else:
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
    command = f"{known.shown} {words_for(view.key, view.index)}"
    what = {
        "waiting": f"answer it with: agentrun answer {command}",
        "failed": f"run it again with: agentrun redo {command}; or settle it with: agentrun skip {command}",
        "skipped": f"run it again with: agentrun redo {command}",
    }.get(view.state, "edit it once it is done")
    raise UsageError(f"{known.name}: {view.key} is {view.state} and has no output to edit; {what}")


def _check_carry(known: KnownJob, last: ItemView) -> None:
    if last.state == "done":
        return
    how = "was skipped" if last.state == "skipped" else "failed"
    raise UsageError(
        f"{known.name}: the last settled item, {last.key}, {how}, and the carry can be edited only after a done item; "
        f"run it again with: agentrun redo {known.shown} {words_for(last.key, last.index)}"
    )


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


def skip(known: KnownJob, selection: Selection, *, reason: str = "", by: str = "", warn: Warn = _unheard) -> Posting:
    """Settle items without a result; a run completes without them."""
    if selection.is_by_name == selection.is_by_rule:
        raise UsageError("which items? Give their keys or --index N, or --failed, or --cause TEXT")
    with open_items(known, warn=warn) as listing:
        run_id, views = _run_of(known, listing), list(select(known, listing, selection))
        for view in views:
            if view.state == "done":
                command = f"agentrun redo {known.shown} {words_for(view.key, view.index)}"
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
    with known.store.reader() as reader:
        # They apply to later runs of the same series, too: each names the record that it is about.
        messages = [structs.replace(one, series=reader.series_of(one.run_id)) for one in messages]
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

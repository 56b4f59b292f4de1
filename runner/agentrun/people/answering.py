"""Questions of waiting items, and people's answers to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentrun.checkpoint.message import AnswerMessage
from agentrun.errors import UsageError
from agentrun.people.forms import Posting, QuestionView, ReplyTo
from agentrun.people.messages import (
    QuestionId,
    answer_message,
    answered,
    is_answer_to,
    person,
    question_of,
    typed_details,
)
from agentrun.people.posting import check_here, listed, post, run_of
from agentrun.people.selecting import Selection, find_item, select_one, words_for
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun.views.place import Warn, open_items, unheard


def questions(known: KnownJob, listing: Listing | None = None, *, warn: Warn = unheard) -> Iterator[QuestionView]:
    """The items that wait for a person, in item order."""
    with listed(known, listing, warn) as shown:
        before = answered(known.store.inbox())
        for view in shown.items({"waiting"}):
            if view.question is not None:
                steps, is_answered = tuple(shown.steps(view)), question_of(view) in before
                yield QuestionView(view.index, view.key, view.gen, view.question, steps, is_answered)


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
    is_typed: bool = False,
    asked: QuestionId | None = None,
    by: str = "",
    listing: Listing | None = None,
    warn: Warn = unheard,
) -> Posting:
    """Answer the question of one item.

    With `is_typed`, the details are text from a form. With `asked`, it answers that question and no other: UsageError
    if the item asks another one by now, or none.
    """
    with listed(known, listing, warn) as items:
        run_id, view = run_of(known, items), select_one(known, items, selection)
    _check_asks(known, view, asked)
    if question_of(view) in answered(known.store.inbox()):
        raise UsageError(f"{known.name}: this question has an answer that is not processed yet; the first answer wins")
    return _post_answers(known, run_id, [(view, ReplyTo(view.key, yes, text, details or {}, is_typed))], by)


def _check_asks(known: KnownJob, view: ItemView, asked: QuestionId | None) -> None:
    if asked is not None and (view.question is None or question_of(view) != asked):
        raise UsageError(f"{known.name}: {view.key} no longer asks this question; nothing was posted")


def answer_all(known: KnownJob, *, yes: bool, text: str = "", by: str = "", warn: Warn = unheard) -> Posting:
    """Answer all items that wait, in the same way."""
    with open_items(known, warn=warn) as listing:
        run_id = run_of(known, listing)
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
    warn: Warn = unheard,
) -> Posting:
    """Answer several items, each in its own way. Paths are relative to `here`.

    Replies to items that do not wait, or no longer, are ignored and named in the posting. Two replies to one item, and
    items and details that do not exist, are errors: then nothing is posted.
    """
    if not replies:
        raise UsageError(f"{known.name}: there are no answers to post")
    with open_items(known, warn=warn) as listing:
        run_id, found = run_of(known, listing), []
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
    posting = post(known, [view for view, _ in new], [message for _, message in new])
    return replace(posting, already_answered=len(said) - len(new))


def _answer_of(view: ItemView, reply: ReplyTo, run_id: str, by: str) -> AnswerMessage:
    with _naming(reply.where):
        details = typed_details(view, reply.details) if reply.is_typed else reply.details
        return answer_message(view, run_id, yes=reply.yes, text=reply.text, details=details, by=by)


def take_back(
    known: KnownJob,
    selection: Selection,
    *,
    asked: QuestionId | None = None,
    listing: Listing | None = None,
    warn: Warn = unheard,
) -> ItemView:
    """Take back the answer that was posted to the question of one item; UsageError if a runner has it already.

    With `asked`, the answer to that question and to no other: UsageError if the item asks another one by now, or none.
    """
    with listed(known, listing, warn) as items:
        check_here(known, items.reader.run_id)
        view = select_one(known, items, selection)
        was_answered = any(step.kind == "answer" for step in items.steps(view))
    _check_asks(known, view, asked)
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

"""The desk: what people tell a run. Questions, answers, redo, edit and skip, for every kind of front end.

Each function takes a job and a selection of its items, posts messages to the job's inbox without the lock, and returns
what was posted. A runner at work processes them within two seconds; otherwise the next launch does. `warn` is told what
the caller should know about the items, before anything is posted and also if nothing is. A job that was moved away can
be looked at, and everything else is refused with UsageError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentrun.errors import UsageError
from agentrun.people.answering import answer, answer_all, answer_each, is_answered, questions, take_back
from agentrun.people.forms import Editable, Posting, QuestionView, ReplyTo
from agentrun.people.messages import (
    QuestionId,
    carry_message,
    edit_message,
    person,
    redo_message,
    skip_message,
)
from agentrun.people.posting import check_here, listed, post, refusing, run_of
from agentrun.people.selecting import Selection, select, select_one, words_for
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun.views.place import Warn, open_items, unheard

__all__ = [
    "Agree",
    "Editable",
    "Items",
    "Posting",
    "QuestionId",
    "QuestionView",
    "ReplyTo",
    "Selection",
    "answer",
    "answer_all",
    "answer_each",
    "check_here",
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

Items = Sequence[ItemView]
Agree = Callable[[Items], bool]
"""Asked with the items before anything is posted; if it says no, nothing is."""


# ---- redo


def redo(
    known: KnownJob,
    selection: Selection,
    *,
    keep_before: str | None = None,
    now: bool = False,
    by: str = "",
    agree: Agree = lambda items: True,
    listing: Listing | None = None,
    warn: Warn = unheard,
) -> Posting:
    """Start items over; the results they have are given up.

    With `keep_before`, the steps before that one are kept. With `now`, a runner at work does it at once. `agree` is
    asked first.
    """
    if selection.is_by_name == selection.is_by_rule:
        raise UsageError("which items? Give keys or --index N; or --failed, --cause, --agent-version, --from")
    with listed(known, listing, warn) as items:
        run_id, is_named = run_of(known, items), selection.is_by_name
        # Not the records: there may be very many.
        views = [
            replace(view, record=None)
            for view in select(known, items, selection)
            if _can_start_over(known, items, view, is_named=is_named)
        ]
        if not views:
            raise UsageError(f"{known.name}: no items match; see: agentrun items {known.shown}")
        if keep_before is not None:
            _check_steps(known, items, views, keep_before)
        if not agree(views):
            return Posting(is_unfinished=items.is_unfinished)
        by = by or person()
        messages = [redo_message(view, run_id, keep_before=keep_before, now=now, by=by) for view in views]
        return replace(post(known, views, messages), waits_for_launch=not now)


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


def to_edit(known: KnownJob, selection: Selection | None = None, *, warn: Warn = unheard) -> Editable:
    """The output of one item to correct; without a selection, the carry that the next item would get."""
    with open_items(known, warn=warn) as listing:
        run_id = run_of(known, listing)
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
    with refusing(known):
        if editable.is_carry:
            message = carry_message(view, run_id, carry=value, by=by)
        else:
            message = edit_message(view, run_id, output=value, by=by)
    return replace(post(known, [editable.view], [message]), waits_for_launch=editable.is_carry)


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


def skip(
    known: KnownJob,
    selection: Selection,
    *,
    reason: str = "",
    by: str = "",
    agree: Agree = lambda items: True,
    listing: Listing | None = None,
    warn: Warn = unheard,
) -> Posting:
    """Settle items without a result; a run completes without them. `agree` is asked as for `redo`."""
    if selection.is_by_name == selection.is_by_rule:
        raise UsageError("which items? Give their keys or --index N, or --failed, or --cause TEXT")
    with listed(known, listing, warn) as items:
        run_id, views = run_of(known, items), list(select(known, items, selection))
        for view in views:
            if view.state == "done":
                command = f"agentrun redo {known.shown} {words_for(view.key, view.index)}"
                raise UsageError(f"{known.name}: {view.key} is done; it has a result; to discard it: {command}")
            if view.state == "skipped":
                raise UsageError(f"{known.name}: {view.key} is skipped; nothing to do")
        if not views:
            such = f" with {selection.cause}" if selection.cause is not None else ""
            such = " with the cause of this id" if selection.cause_id is not None else such
            raise UsageError(f"{known.name}: no items have failed{such}; see: agentrun failures {known.shown}")
        if not agree(views):
            return Posting(is_unfinished=items.is_unfinished)
        by = by or person()
        messages = [skip_message(view, run_id, reason=reason, by=by) for view in views]
        posting = post(known, views, messages)
        return replace(posting, completes=_completes(known, items, views))


def _completes(known: KnownJob, listing: Listing, views: Sequence[ItemView]) -> bool:
    """Whether these were the last items that kept the run from completing."""
    left = Counter(listing.counts)
    left.subtract(view.state for view in views)
    allowed = known.job.allow_failures.of(len(listing)) if known.job is not None else 0
    return listing.is_unfinished and not left["pending"] + left["waiting"] and left["failed"] <= allowed

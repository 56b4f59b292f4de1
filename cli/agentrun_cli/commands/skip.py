"""agentrun skip: settle items without a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming as handing_in

if TYPE_CHECKING:
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing
    from agentrun_cli.asking.choosing import KnownJob


def skip(
    job: flags.KnownJob,
    items: handing_in.ManyItems = None,
    index: handing_in.Indexes = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed items.")] = False,
    cause: Annotated[
        str | None,
        typer.Option("--cause", metavar="TEXT", help="Items that failed with this cause, as failures shows it."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Recorded with each item.")] = "",
    by: handing_in.By = None,
    resume: handing_in.Resume = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Settle items without a result; the run completes without them.

    \b
    agentrun skip triage documents/0007.txt --reason 'a duplicate'
    agentrun skip triage --failed --cause 'not a PDF'
    """
    from agentrun.errors import UsageError
    from agentrun.people.messages import run_of, skip_message
    from agentrun_cli.asking.choosing import choose_views, is_of_cause, open_items, open_known, words_for

    named = bool(items or index)
    if named == (failed or cause is not None):
        raise UsageError("which items? Give their keys or --index N, or --failed, or --cause TEXT")
    known = open_known(job, state_dir)
    who = handing_in.signed(by)
    with open_items(known) as listing:
        run_id = run_of(listing, known.folder.name)
        if named:
            views = choose_views(known, listing, items or [], index or [])
        else:
            views = [view for view in listing.items({"failed"}) if cause is None or is_of_cause(view, cause)]
        for view in views:
            if view.state in ("done", "skipped"):
                command = f"agentrun redo {known.name} {words_for(view.key, view.index)}"
                again = f"it has a result; to discard it: {command}" if view.state == "done" else "nothing to do"
                raise UsageError(f"{known.folder.name}: {view.key} is {view.state}; {again}")
        messages = [skip_message(view, run_id, reason=reason, by=who) for view in views]
        completes = _completes(known, listing, views)
    if not messages:
        such = f" with {cause}" if cause is not None else ""
        raise UsageError(f"{known.folder.name}: no items have failed{such}; see: agentrun failures {known.name}")
    handing_in.hand_in(known, messages)
    handing_in.end(known, f"{handing_in.are(len(messages), 'item')} to be skipped", go_on=resume or completes)


def _completes(known: KnownJob, listing: Listing, views: Sequence[ItemView]) -> bool:
    """Whether the run completes once they are skipped: then the next launch runs nothing."""
    left = Counter(listing.counts)
    left.subtract(view.state for view in views)
    allowed = known.job.allow_failures.of(len(listing)) if known.job is not None else 0
    return listing.checkpoint is not None and not left["pending"] + left["waiting"] and left["failed"] <= allowed

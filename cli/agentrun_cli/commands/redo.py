"""agentrun redo: start items over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming as handing_in

if TYPE_CHECKING:
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing
    from agentrun_cli.asking.choosing import KnownJob


def redo(
    job: flags.KnownJob,
    items: handing_in.ManyItems = None,
    index: handing_in.Indexes = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed items, including those set aside.")] = False,
    cause: Annotated[
        str | None,
        typer.Option("--cause", metavar="TEXT", help="Items that failed with this cause, as failures shows it."),
    ] = None,
    agent_version: Annotated[
        str | None, typer.Option("--agent-version", metavar="V", help="Results of this version of the agent.")
    ] = None,
    first: Annotated[
        int | None, typer.Option("--from", metavar="K", min=0, help="The item at index K and all after it.")
    ] = None,
    steps: Annotated[str | None, typer.Option("--steps", metavar="NAME", help="Keep the steps before NAME.")] = None,
    now: Annotated[bool, typer.Option("--now", "--resume", help="At once, not at the next launch.")] = False,
    yes: handing_in.Yes = False,
    by: handing_in.By = None,
    state_dir: flags.StateDir = None,
) -> None:
    """Start items over; their results are discarded.

    \b
    agentrun redo triage documents/0007.txt
    agentrun redo triage --failed --cause 'not a PDF' --now
    agentrun redo triage --from 120
    """
    from agentrun.errors import UsageError
    from agentrun.people.messages import redo_message, run_of
    from agentrun_cli.asking.choosing import choose_views, open_items, open_known
    from agentrun_cli.terminal import counted, say

    named = bool(items or index)
    if named == (failed or cause is not None or agent_version is not None or first is not None):
        raise UsageError("which items? Give keys or --index N; or --failed, --cause, --agent-version, --from")
    known, who = open_known(job, state_dir), handing_in.signed(by)
    with open_items(known) as listing:
        run_id = run_of(listing, known.folder.name)
        if named:
            found: Iterator[ItemView] = iter(choose_views(known, listing, items or [], index or []))
        else:
            found = _selected(listing, failed=failed, cause=cause, version=agent_version, first=first)
        # Without the records: there may be very many.
        views = [_light(view) for view in found if _can_start_over(known, listing, view, is_named=named)]
        if not views:
            raise UsageError(f"{known.folder.name}: no items match; see: agentrun items {known.name}")
        if steps is not None:
            _check_steps(known, listing, views, steps)
    done = sum(view.state == "done" for view in views)
    if done:
        one = "a finished result" if done == 1 else f"{done:,} finished results"
        of = f", to run {counted(len(views), 'item')} again" if len(views) > 1 else ""
        say(f"{known.folder.name}: this discards {one}{of}")
        if not named:
            handing_in.confirm(known, "continue?", yes=yes)
    handing_in.hand_in(known, [redo_message(view, run_id, keep_before=steps, now=now, by=who) for view in views])
    handing_in.end(known, f"{handing_in.are(len(views), 'item')} to be run again", go_on=now, at_launch=not now)


def _selected(
    listing: Listing, *, failed: bool, cause: str | None, version: str | None, first: int | None
) -> Iterator[ItemView]:
    """The items that match all the filters."""
    from agentrun_cli.asking.choosing import is_of_cause

    for view in listing.items({"failed"} if failed or cause is not None else None):
        if (
            (cause is None or is_of_cause(view, cause))
            and (version is None or bool(version and view.agent.startswith(version)))
            and (first is None or view.index >= first)
        ):
            yield view


def _light(view: ItemView) -> ItemView:
    from dataclasses import replace

    return replace(view, record=None)


def _can_start_over(known: KnownJob, listing: Listing, view: ItemView, *, is_named: bool) -> bool:
    from agentrun.errors import UsageError

    if view.state != "pending" or listing.has_steps(view):
        return True
    if is_named:
        raise UsageError(f"{known.folder.name}: {view.key} is pending; the next launch runs it anyway")
    return False


def _check_steps(known: KnownJob, listing: Listing, views: list[ItemView], name: str) -> None:
    from agentrun.errors import UsageError

    found = listing.step_names(views)
    if any(name in names for names in found.values()):
        return
    names = list(dict.fromkeys(name for names in found.values() for name in names))
    has = f"they have {', '.join(names[:10])}" if names else "they have no steps on record; leave out --steps"
    raise UsageError(f"{known.folder.name}: none of these items has a step {name}; {has}")

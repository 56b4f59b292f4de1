"""agentrun redo: start items over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming

if TYPE_CHECKING:
    from agentrun.views.finding import KnownJob
    from agentrun.views.item import ItemView


def redo(
    job: flags.KnownJob,
    items: confirming.ManyItems = None,
    index: confirming.Indexes = None,
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
    yes: confirming.Yes = False,
    by: confirming.By = None,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Start items over; their results are discarded.

    \b
    agentrun redo triage documents/0007.txt
    agentrun redo triage --failed --cause 'not a PDF' --now
    agentrun redo triage --from 120
    """
    from dataclasses import replace

    from agentrun.people import desk
    from agentrun_cli.asking.choosing import open_known, select, warn

    selection = replace(select(items, index), failed=failed, cause=cause, agent_version=agent_version, first=first)
    known = open_known(job, state_dir, store)
    if now:
        confirming.check_can_resume(known)

    def agree(views: Sequence[ItemView]) -> bool:
        _warn_of_loss(known, views, asks=not selection.is_by_name, yes=yes)
        return True

    posting = desk.redo(known, selection, keep_before=steps, now=now, by=by or "", agree=agree, warn=warn)
    what = f"{confirming.are(len(posting.items), 'item')} to be run again"
    confirming.end(known, posting, what, ref=job, state_dir=state_dir, store=store, resume=now)


def _warn_of_loss(known: KnownJob, views: Sequence[ItemView], *, asks: bool, yes: bool) -> None:
    from agentrun_cli.terminal import counted, say

    done = sum(view.state == "done" for view in views)
    if not done:
        return
    one = "a finished result" if done == 1 else f"{done:,} finished results"
    of = f"; {counted(len(views), 'item')} will be run again" if len(views) > 1 else ""
    say(f"{known.name}: this discards {one}{of}")
    if asks:
        confirming.confirm(known.name, "continue?", yes=yes, otherwise="nothing is posted")

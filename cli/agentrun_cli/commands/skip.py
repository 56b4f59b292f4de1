"""agentrun skip: settle items without a result."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asking import confirming


def skip(
    job: flags.KnownJob,
    items: confirming.ManyItems = None,
    index: confirming.Indexes = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed items.")] = False,
    cause: Annotated[
        str | None,
        typer.Option("--cause", metavar="TEXT", help="Items that failed with this cause, as failures shows it."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Recorded with each item.")] = "",
    by: confirming.By = None,
    resume: confirming.Resume = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Settle items without a result; the run completes without them.

    \b
    agentrun skip triage documents/0007.txt --reason 'a duplicate'
    agentrun skip triage --failed --cause 'not a PDF'
    """
    from dataclasses import replace

    from agentrun.people import desk
    from agentrun_cli.asking.choosing import open_known, select, warn

    known = open_known(job, state_dir, store)
    if resume:
        confirming.check_can_resume(known)
    selection = replace(select(items, index), failed=failed, cause=cause)
    posting = desk.skip(known, selection, reason=reason, by=by or "", warn=warn)
    what = f"{confirming.are(len(posting.items), 'item')} to be skipped"
    confirming.end(known, posting, what, ref=job, state_dir=state_dir, store=store, resume=resume or posting.completes)

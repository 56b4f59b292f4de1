"""agentrun status: the jobs here, or one of them in detail. Takes no lock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.terminal import HERE, clean, put, put_json, say

if TYPE_CHECKING:
    from agentrun_cli.drawing.status import Shown


def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Show one job in detail.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Your jobs in all folders of this machine.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until Ctrl-C.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Count the items that are new or changed.")] = False,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Show the jobs here, or one in detail: progress, why it stopped.

    \b
    agentrun status
    agentrun status triage --watch
    agentrun status triage --check
    agentrun status --all
    """
    from agentrun.errors import UsageError
    from agentrun.views.finding import locate
    from agentrun_cli.drawing.status import Shown

    if everywhere and (job is not None or state_dir is not None or store is not None):
        raise UsageError("--all shows every job; give it alone, or give one JOB")
    if check and job is None:
        raise UsageError("--check needs a JOB: agentrun status JOB --check")
    known = locate(job, HERE, state_dir, store=store) if job is not None else None
    shown = Shown(known, state_dir, store, everywhere, check)
    if not watch:
        _show(shown, as_json=as_json)
        return
    try:
        _watch(shown, as_json=as_json)
    except KeyboardInterrupt:
        pass


def _show(shown: Shown, *, as_json: bool) -> None:
    if as_json:
        put_json(shown.as_json())
        return
    views = shown.views()
    for line in shown.lines(views):
        put(line)
    for problem in shown.problems(views):
        say(clean(problem, limit=2000))
    if not views:
        say(shown.nothing + shown.how_to_begin)


def _watch(shown: Shown, *, as_json: bool) -> None:
    from agentrun_cli.drawing.watching import INTERVAL_SECONDS, watch_lines

    while as_json:
        _show(shown, as_json=True)
        time.sleep(INTERVAL_SECONDS)
    watch_lines(lambda: shown.lines(shown.views(), is_watched=True) or [shown.nothing], wrapped=shown.known is not None)

"""agentrun stop: ask the runner of a job to stop."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.asked import Asked
from agentrun_cli.hints import how_to_name, how_to_resume

_POLL_SECONDS = 0.1
# Two pending signals of one kind count as one.
_BETWEEN_SIGNALS_SECONDS = 0.3


def stop(
    job: flags.KnownJob,
    now: Annotated[bool, typer.Option("--now", help="Stop items in flight at once; they are run again later.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the runner has exited.")] = True,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Stop the runner of a job; finished work is kept.

    \b
    agentrun stop triage
    agentrun stop triage --now
    """
    from agentrun.views.finding import locate
    from agentrun_cli.terminal import HERE, say

    known = locate(job, HERE, state_dir, store=store)
    name, at = known.name, known.store
    holder = at.holder()
    if holder is None:
        say(f"{name}: no runner is working on it")
        return
    at.ask_to_stop(holder)
    how = "items in flight are stopped at once" if now else "items in flight may finish first"
    say(f"{name}: asked pid {holder.pid} to stop; {how}")
    if now:
        time.sleep(_BETWEEN_SIGNALS_SECONDS)
        if at.holder() == holder:
            at.ask_to_stop(holder)
    if wait:
        while at.holder() == holder:
            time.sleep(_POLL_SECONDS)
        shown = how_to_name(name, at.folder, Asked(job, state_dir=state_dir, store=store))
        say(f"{name}: stopped; to resume: {how_to_resume(shown, None, known)}")

"""agentrun clear: remove a job's state."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def clear(
    job: flags.KnownJob,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Remove a job's state and history; written results stay.

    \b
    agentrun clear triage
    agentrun clear triage --yes
    """
    from agentrun.outputs.claim import drop_claims
    from agentrun.views.finding import locate
    from agentrun.views.jobs import view_job
    from agentrun_cli.asking.confirming import confirm
    from agentrun_cli.terminal import HERE, counted, say, shown_path

    known = locate(job, HERE, state_dir)
    name, store = known.name, known.store
    if store.folder is not None and not store.folder.is_dir():
        say(f"{name}: nothing to remove")
        return
    where = shown_path(store.folder) if store.folder is not None else "its state"
    lease = store.lock(wait_seconds=1.0)
    try:
        view = view_job(store, name)
        done = view.counts.get("done", 0)
        if view.status == "finished":
            output = shown_path(view.output or "its output")
            what = f"the history of its runs; the results in {output} stay (replaced only with --overwrite)"
        elif view.status in ("new", "damaged"):
            what = "whatever there is"
        else:
            what = f"an unfinished run with {counted(done, 'result')} that {'is' if done == 1 else 'are'} nowhere else"
        say(f"{name}: this removes {where}: {what}")
        confirm(name, "remove it?", yes=yes, otherwise="nothing removed")
        drop_claims(store)
        store.clear()
        say(f"removed {where}")
    finally:
        lease.release()

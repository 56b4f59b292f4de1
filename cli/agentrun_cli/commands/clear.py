"""agentrun clear: remove a job's state."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentrun_cli import flags


def clear(
    job: flags.KnownJob,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Remove a job's state and history; written results stay."""
    from agentrun.errors import UsageError
    from agentrun.store.folder.store import FolderStore
    from agentrun.views.jobs import read_job_view
    from agentrun_cli.terminal import counted, say, shown_path

    folder = flags.job_folder(job, state_dir)
    if not folder.is_dir():
        say(f"{folder.name}: nothing to remove")
        return
    store = FolderStore(folder)
    store.lock(wait_seconds=1.0)
    try:
        view = read_job_view(folder)
        done = view.counts.get("done", 0)
        if view.status == "finished":
            output = shown_path(view.output or "its output")
            what = f"the history of its runs; the results in {output} stay (replaced only with --overwrite)"
        elif view.status in ("new", "damaged"):
            what = "whatever there is"
        else:
            what = f"an unfinished run with {counted(done, 'result')} that {'is' if done == 1 else 'are'} nowhere else"
        say(f"{folder.name}: this removes {shown_path(folder)}: {what}")
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"{folder.name}: not removed: this is not a terminal, so nobody can confirm; add --yes"
                )
            say("remove it? [y/N]")
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                say(f"{folder.name}: nothing removed")
                raise typer.Exit(2)
        store.clear()
        say(f"removed {shown_path(folder)}")
    finally:
        store.release()

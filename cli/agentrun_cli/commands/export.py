"""agentrun export: everything of a job in one file, to copy it or to move it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentrun_cli import flags

SHOWN = 3
"""How many of the files that were left out are named."""


def export(
    job: flags.KnownJob,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="The file; JOB.agentrun here by default.")
    ] = None,
    move: Annotated[bool, typer.Option("--move", help="Do not run it here any more.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Run it here again after a move.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing FILE.")] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Write a job's state to a file, for agentrun import.

    \b
    agentrun export triage -o triage.agentrun --move
    agentrun export triage --undo

    The file has the unfinished run, the runs that ended, what people posted, and the files of items. It does not have
    the job file, the agent and the items: copy those as well. (Items from standard input or Python are in it.)
    Exit 75: a runner has the job, or something was posted during a move.
    """
    from agentrun.errors import UsageError
    from agentrun.people.moving import export_job, undo_move
    from agentrun.people.sealing import FileSeal
    from agentrun.views.finding import locate
    from agentrun_cli.terminal import HERE, clean, counted, say, shown_path

    if undo and (move or output is not None or overwrite):
        raise UsageError("--undo writes no file; give it alone")
    known = locate(job, HERE, state_dir, store=store)
    if undo:
        undo_move(known)
        say(f"{known.name}: the move is undone, and the job can run here; make sure that it runs nowhere else")
        return
    file = HERE / (output if output is not None else f"{known.name}.agentrun")
    seal = FileSeal()
    done = export_job(known, Path(file), move=move, overwrite=overwrite, sealing=seal.seal)
    sealed = ", sealed" if seal.is_set else ""
    say(f"{known.name}: {'moved' if move else 'exported'} to {shown_path(done.file)} ({done.size:,} bytes{sealed})")
    if done.left_out:
        more = ", …" if len(done.left_out) > SHOWN else ""
        names = ", ".join(clean(one, limit=200) for one in done.left_out[:SHOWN])
        say(f"  left out:  {counted(len(done.left_out), 'file')}: {names}{more}")
    if done.apart:
        *others, last = done.apart
        what = f"{', '.join(others)} and {last}; copy them too" if others else f"{last}; copy it too"
        say(f"  not in it: {what}")
    say(f"  there:     agentrun import {clean(done.file.name)}")

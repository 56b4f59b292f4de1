"""agentrun import: a job from a file that agentrun export wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.people.moving import Imported


def import_job(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that agentrun export wrote.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another name for the job.")] = None,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Continue a job here that was exported elsewhere.

    \b
    agentrun import triage.agentrun
    agentrun resume triage

    To be called in the folder of the job file: a store that is named there is the job's. A job that was moved away from
    here may come back. Exit 65: FILE is damaged or of a newer version, and nothing was imported. 2: it is no export, or
    there is a job of that name.
    """
    import os
    from functools import partial

    from agentrun.job.home import state_root
    from agentrun.people import moving
    from agentrun.people.destination import check_store, named_store
    from agentrun.people.sealing import FileSeal
    from agentrun.views.finding import asked_store, catalogue_at
    from agentrun_cli.terminal import HERE, clean, say

    asked, opening = asked_store(store, HERE), partial(FileSeal().open, where=file)
    named = named_store(HERE / file, here=HERE, name=name or "", opening=opening)
    if named is not None and asked is not None:
        check_store(asked, named)
    elif named is not None:
        asked = named.address
    catalogue = catalogue_at(state_root(HERE, state_dir, os.environ), asked)
    done = moving.import_job(HERE / file, catalogue, here=HERE, name=name or "", opening=opening)
    back = "back" if done.is_back else "imported"
    say(
        f"{clean(done.name)}: {back}, with {done.done:,} of {done.total:,} items done; "
        f"exported on {clean(done.host)} at {done.at[:16]}Z"
    )
    for line in _notes(done, named.file if named is not None else None):
        say(f"  {line}")
    say(f"  to continue:  {_next(done)}")


def _notes(done: Imported, named_in: Path | None) -> list[str]:
    """What to know about the job; `named_in` is the job file that names its store."""
    from agentrun_cli.terminal import clean, counted, shown_path

    notes = []
    if done.store.where:
        said = f", which {shown_path(named_in)} names" if named_in is not None else ""
        notes.append(f"in the store {clean(done.store.where)}{said}")
    if done.is_unfinished and not done.was_moved:
        notes.append(f"a copy: the job may still run on {clean(done.host)}, and both would pay for the same items")
    if done.missed:
        items = counted(len(done.missed), "item")
        notes.append(f"the files of {items} were missing or changed: {clean(', '.join(done.missed[:3]), limit=300)}")
    if done.job_file is not None and not done.job_file.is_file():
        notes.append(f"its job file is not here: put it at {shown_path(done.job_file)}, with the agent and the items")
    return notes


def _next(done: Imported) -> str:
    """The command that continues the job, as it works here."""
    import shlex

    from agentrun_cli.hints import how_to_name
    from agentrun_cli.terminal import shown_path

    named = how_to_name(done.name, done.store.folder)
    if done.is_unfinished:
        return f"agentrun resume {named}"
    if done.job_file is not None and done.has_other_name:
        return f"agentrun start {shlex.quote(shown_path(done.job_file))} --name {shlex.quote(done.name)}"
    return f"agentrun start {named}"

"""agentrun rekey: new keys for a job in a shared store."""

from __future__ import annotations

from typing import Annotated

import typer

from agentrun_cli import flags


def rekey(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="The job to write again.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Print a fresh key, and do nothing else.")] = False,
    seal: Annotated[bool, typer.Option("--seal", help="Seal a job that is not sealed yet.")] = False,
    unseal: Annotated[bool, typer.Option("--unseal", help="Write everything in clear.")] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Seal a job of a shared store with another key.

    \b
    agentrun rekey --new
    AGENTRUN_KEY_FILE=keys agentrun rekey triage
    AGENTRUN_KEY_FILE=keys agentrun rekey triage --seal

    The first key seals, all of them open: put the new key first, rekey each job, then remove the old key. Exit 75: a
    runner has the job; 65: a side file cannot be opened, and is left as it was. After a crash, give the same command
    again.
    """
    from agentrun.errors import UsageError
    from agentrun.people.sealing import new_key, rekey_job
    from agentrun.views.finding import locate
    from agentrun_cli.terminal import HERE, clean, counted, put, say

    if new:
        if job is not None or seal or unseal:
            raise UsageError("--new prints a key; give it alone")
        put(new_key())
        return
    if job is None or (seal and unseal):
        raise UsageError("give a JOB, and at most one of --seal and --unseal; a fresh key: agentrun rekey --new")
    known = locate(job, HERE, state_dir, store=store)
    done = rekey_job(known.store, known.name, change="seal" if seal else "unseal" if unseal else "rekey")
    what = f"{counted(done.runs, 'run')}, {counted(done.records, 'record')}, {counted(done.files, 'side file')}"
    say(f"{known.name}: {'in clear' if unseal else 'sealed with the first key'}: {what}")
    for one in done.left:
        say(f"  left as it was, because it cannot be opened: {clean(one, limit=200)}")
    if done.left:
        raise typer.Exit(65)

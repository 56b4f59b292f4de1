"""agentrun clear: remove a job's state, or that of all finished jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.views.jobs import JobView


def clear(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="A job's name, or its job file.")] = None,
    finished: Annotated[bool, typer.Option("--finished", help="All finished jobs here.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Finished jobs that ended that long ago, such as 30d."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """Remove a job's state and history; written results stay.

    \b
    agentrun clear triage
    agentrun clear --finished --older-than 30d
    """
    from agentrun.errors import UsageError

    if (job is not None) == (finished or older_than is not None):
        raise UsageError("which jobs? Give the name of one; or --finished, --older-than 30d, or both")
    if job is not None:
        _clear_one(job, state_dir, store, yes=yes)
    else:
        _clear_finished(older_than, state_dir, store, yes=yes)


def _clear_finished(older_than: str | None, state_dir: str | None, at: str | None, *, yes: bool) -> None:
    from agentrun.errors import BusyError
    from agentrun.people.clearing import clear_finished, clearable_jobs
    from agentrun.views.finding import catalogue_near
    from agentrun_cli.asking.confirming import confirm
    from agentrun_cli.drawing.table import clearing_lines
    from agentrun_cli.terminal import HERE, clean, counted, say

    catalogue = catalogue_near(HERE, state_dir, store=at)
    found = clearable_jobs(catalogue, older_than_seconds=_seconds(older_than))
    for line in clearing_lines(found):
        say(line)
    if not found.finished:
        say(f"no finished jobs{f' older than {older_than}' if older_than else ''} here; nothing to remove")
        return
    confirm("clear", "remove them?", yes=yes, otherwise="nothing removed")
    removed, is_busy = 0, False
    for view in found.finished:
        try:
            why = clear_finished(catalogue.store(view.job), view)
        except BusyError:
            why, is_busy = "a runner is at work", True
        removed += not why
        if why:
            say(f"{clean(view.job)}: not removed: {why}")
    say(f"removed {counted(removed, 'job')}")
    if is_busy:
        raise typer.Exit(75)


def _seconds(older_than: str | None) -> float:
    from agentrun.errors import UsageError
    from agentrun.values.units import parse_duration

    try:
        return parse_duration(older_than) if older_than is not None else 0.0
    except ValueError:
        raise UsageError(f'--older-than is {older_than}; write a duration such as "30d" or "12h"') from None


def _clear_one(job: str, state_dir: str | None, at: str | None, *, yes: bool) -> None:
    from agentrun.people.clearing import clear_job
    from agentrun.views.finding import locate
    from agentrun.views.jobs import view_job
    from agentrun_cli.asking.confirming import confirm
    from agentrun_cli.terminal import HERE, counted, say, shown_path

    known = locate(job, HERE, state_dir, store=at)
    name, store = known.name, known.store
    if not store.where and store.folder is not None and not store.folder.is_dir():
        say(f"{name}: nothing to remove")
        return
    where = f"{name} from {store.where}" if store.where else shown_path(store.folder) if store.folder else "its state"
    lease = store.lock(wait_seconds=1.0)
    try:
        view = view_job(store, name)
        done = view.counts.get("done", 0)
        if view.figures_only and view.sealed:
            # The records may be of anything: nobody here can say what is lost.
            what = f"{_sealed_run(view)}, sealed, so that it cannot be read without its key"
        elif view.status == "finished" and not view.figures_only:
            output = shown_path(view.output or "its output")
            what = f"the history of its runs; the results in {output} stay (replaced only with --overwrite)"
        elif view.status == "moved":
            what = f"what is left here of a job that {view.moved.words if view.moved else 'was moved away'}"
        elif view.status in ("new", "damaged", "unreachable"):
            what = "whatever there is"
        elif view.status == "finished":
            what = "the history of its runs"
        else:
            what = f"an unfinished run with {counted(done, 'result')} that {'is' if done == 1 else 'are'} nowhere else"
        say(f"{name}: this removes {where}: {what}")
        confirm(name, "remove it?", yes=yes, otherwise="nothing removed")
        clear_job(store)
        say(f"removed {where}")
    finally:
        lease.release()


def _sealed_run(view: JobView) -> str:
    from agentrun_cli.terminal import counted

    which = "finished" if view.status == "finished" else "unfinished"
    return f"a job whose last run is {which}, with {counted(view.counts.get('done', 0), 'result')}"

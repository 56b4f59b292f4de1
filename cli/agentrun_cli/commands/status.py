"""agentrun status: the jobs here, or one of them in detail. Takes no lock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags
from agentrun_cli.terminal import HERE, clean, put, put_json, say

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.finding import KnownJob
    from agentrun.views.jobs import JobView
    from agentrun.views.since import Changes

NONE_HERE = "no jobs are known here"
NONE_ANYWHERE = "no jobs are known on this machine"


def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Show one job in detail.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Your jobs in all folders of this machine.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until Ctrl-C.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Count the items that are new or changed.")] = False,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Show the jobs here, or one in detail: progress, why it stopped.

    \b
    agentrun status
    agentrun status triage --watch
    agentrun status triage --check
    agentrun status --all
    """
    from agentrun.errors import UsageError

    if everywhere and (job is not None or state_dir is not None):
        raise UsageError("--all shows every job; give it alone, or give one JOB")
    if check and job is None:
        raise UsageError("--check needs a JOB: agentrun status JOB --check")
    asked = _Asked(_locate(job, state_dir) if job is not None else None, state_dir, everywhere, check)
    if not watch:
        _show(asked, as_json=as_json)
        return
    try:
        _watch(asked, as_json=as_json)
    except KeyboardInterrupt:
        pass


@dataclass(frozen=True)
class _Asked:
    """Which jobs to show."""

    known: KnownJob | None
    state_dir: str | None
    everywhere: bool
    check: bool

    def views(self) -> list[JobView]:
        from agentrun.views.finding import catalogue_near
        from agentrun.views.jobs import list_everywhere, list_jobs, view_job

        if self.known is not None:
            return [view_job(self.known.store, self.known.name)]
        return list_everywhere() if self.everywhere else list_jobs(catalogue_near(HERE, self.state_dir))


def _locate(job: str, state_dir: str | None) -> KnownJob:
    from agentrun.views.finding import locate

    return locate(job, HERE, state_dir)


def _show(asked: _Asked, *, as_json: bool) -> None:
    views = asked.views()
    if as_json:
        put_json(_one_json(asked, views[0]) if asked.known else [view.as_json() for view in views])
        return
    for line in _lines(asked, views):
        put(line)
    for view in views:
        if view.status == "untrusted":
            say(clean(view.problem, limit=2000))
    if not views:
        here = f"{NONE_HERE}; start with: agentrun init, or: agentrun start JOB"
        say(NONE_ANYWHERE if asked.everywhere else here)


def _one_json(asked: _Asked, view: JobView) -> dict[str, Any]:
    since = _since(asked, view)
    checked = {"since": since.as_json() if since is not None else None} if asked.check else {}
    return view.as_json() | checked


def _watch(asked: _Asked, *, as_json: bool) -> None:
    from agentrun_cli.drawing.watching import INTERVAL_SECONDS, watch_lines

    while as_json:
        _show(asked, as_json=True)
        time.sleep(INTERVAL_SECONDS)
    watch_lines(
        lambda: _lines(asked, asked.views(), is_watched=True) or [NONE_ANYWHERE if asked.everywhere else NONE_HERE],
        wrapped=asked.known is not None,
    )


def _lines(asked: _Asked, views: list[JobView], *, is_watched: bool = False) -> list[str]:
    from agentrun_cli.drawing.job import job_lines
    from agentrun_cli.drawing.table import job_table

    known = asked.known
    if known is None:
        return list(job_table(views, has_place=asked.everywhere)) if views else []
    view = views[0]
    return list(
        job_lines(
            view,
            known,
            output=view.output or _output(known, view),
            state_dir=asked.state_dir,
            since=_since(asked, view),
            is_watched=is_watched,
        )
    )


def _since(asked: _Asked, view: JobView) -> Changes | None:
    """What is new or changed since a finished run, if that was asked for."""
    from agentrun.views.since import changes_since

    if not asked.check or asked.known is None or view.status != "finished":
        return None
    opened = _open(asked.known)
    return changes_since(asked.known.store, opened.job)


def _output(known: KnownJob, view: JobView) -> Path | None:
    """Where an unfinished run will put its results; None where the job cannot be read now."""
    from agentrun.errors import AgentrunError

    if not view.date or known.store.folder is None:
        return None
    try:
        return _open(known).job.output_path(run_id=view.run_id, date=view.date)
    except AgentrunError:
        return None


def _open(known: KnownJob) -> Any:
    from agentrun.views.finding import open_job

    folder = known.store.folder
    return open_job(known.name, cwd=HERE, state_dir=str(folder.parent) if folder is not None else None)

"""agentrun status: the jobs here, or one of them in detail. Takes no lock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.terminal import HERE, put, put_json, say

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.finding import KnownJob
    from agentrun.views.jobs import JobView


def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Show one job in detail.")] = None,
    as_json: flags.AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until Ctrl-C.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Show the progress of all jobs here, or one job in detail."""
    known = _locate(job, state_dir) if job is not None else None
    if not watch:
        _show(known, state_dir, as_json=as_json)
        return
    try:
        _watch(known, state_dir, as_json=as_json)
    except KeyboardInterrupt:
        pass


def _locate(job: str, state_dir: str | None) -> KnownJob:
    from agentrun.views.finding import locate

    return locate(job, HERE, state_dir)


def _show(known: KnownJob | None, state_dir: str | None, *, as_json: bool) -> None:
    views = _views(known, state_dir)
    if as_json:
        put_json(views[0].as_json() if known else [view.as_json() for view in views])
        return
    for line in _lines(views, known, state_dir):
        put(line)
    if not views:
        say("no jobs are known here; start with: agentrun init, or: agentrun start JOB")


def _watch(known: KnownJob | None, state_dir: str | None, *, as_json: bool) -> None:
    from agentrun_cli.drawing.watching import INTERVAL_SECONDS, watch_lines

    while as_json:
        _show(known, state_dir, as_json=True)
        time.sleep(INTERVAL_SECONDS)
    watch_lines(
        lambda: _lines(_views(known, state_dir), known, state_dir) or ["no jobs are known here"],
        wrapped=known is not None,
    )


def _views(known: KnownJob | None, state_dir: str | None) -> list[JobView]:
    from agentrun.views.finding import catalogue_near
    from agentrun.views.jobs import list_jobs, view_job

    return [view_job(known.store, known.name)] if known is not None else list_jobs(catalogue_near(HERE, state_dir))


def _lines(views: list[JobView], known: KnownJob | None, state_dir: str | None) -> list[str]:
    from agentrun_cli.drawing.job import job_lines
    from agentrun_cli.drawing.table import job_table

    if known is None:
        return list(job_table(views)) if views else []
    view = views[0]
    return list(job_lines(view, known, output=view.output or _output(known, view), state_dir=state_dir))


def _output(known: KnownJob, view: JobView) -> Path | None:
    """Where an unfinished run will put its results; None where the job cannot be read now."""
    from agentrun.errors import AgentrunError
    from agentrun.views.finding import open_job

    if not view.date or known.store.folder is None:
        return None
    try:
        opened = open_job(known.name, cwd=HERE, state_dir=str(known.store.folder.parent))
    except AgentrunError:
        return None
    return opened.job.output_path(run_id=view.run_id, date=view.date)

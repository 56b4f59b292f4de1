"""agentrun status: the jobs here, or one of them in detail. Takes no lock."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from agentrun_cli import flags
from agentrun_cli.terminal import HERE, put, put_json, say

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.views.jobs import JobView


def status(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Show one job in detail.")] = None,
    as_json: flags.AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second, until Ctrl-C.")] = False,
    state_dir: flags.StateDir = None,
) -> None:
    """Show the progress of all jobs here, or one job in detail."""
    folder = flags.job_folder(job, state_dir) if job is not None else None
    if not watch:
        _show(folder, state_dir, as_json=as_json)
        return
    try:
        _watch(folder, state_dir, as_json=as_json)
    except KeyboardInterrupt:
        pass


def _show(folder: Path | None, state_dir: str | None, *, as_json: bool) -> None:
    views = _views(folder, state_dir)
    if as_json:
        put_json(views[0].as_json() if folder else [view.as_json() for view in views])
        return
    for line in _lines(views, folder, state_dir):
        put(line)
    if not views:
        say("no jobs are known here; start with: agentrun init, or: agentrun start JOB")


def _watch(folder: Path | None, state_dir: str | None, *, as_json: bool) -> None:
    from agentrun_cli.drawing.watching import INTERVAL_SECONDS, watch_lines

    while as_json:
        _show(folder, state_dir, as_json=True)
        time.sleep(INTERVAL_SECONDS)
    watch_lines(
        lambda: _lines(_views(folder, state_dir), folder, state_dir) or ["no jobs are known here"],
        wrapped=folder is not None,
    )


def _views(folder: Path | None, state_dir: str | None) -> list[JobView]:
    from agentrun.job.home import known_jobs
    from agentrun.views.jobs import read_job_view

    return [read_job_view(one) for one in ([folder] if folder else known_jobs(HERE, state_dir, os.environ))]


def _lines(views: list[JobView], folder: Path | None, state_dir: str | None) -> list[str]:
    from agentrun_cli.drawing.job import job_lines
    from agentrun_cli.drawing.table import job_table

    if folder is None:
        return list(job_table(views)) if views else []
    view = views[0]
    return list(job_lines(view, output=view.output or _output(view), state_dir=state_dir))


def _output(view: JobView) -> Path | None:
    """Where an unfinished run will put its results; None where the job cannot be read now."""
    from agentrun.errors import AgentrunError
    from agentrun.job.opening import open_job
    from agentrun.views.jobs import read_checkpoint

    try:
        checkpoint = read_checkpoint(view.folder)
        opened = open_job(view.folder.name, cwd=HERE, state_dir=str(view.folder.parent))
    except AgentrunError:
        return None
    if checkpoint is None:
        return None
    return opened.job.output_path(run_id=view.run_id, date=checkpoint.context.get("date", ""))

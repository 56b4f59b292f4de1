"""What `status` shows: the jobs here, those of all folders, or one job in detail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentrun_cli.terminal import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from agentrun.job.job import Job
    from agentrun.views.finding import KnownJob
    from agentrun.views.jobs import JobView
    from agentrun.views.since import Changes


@dataclass(frozen=True)
class Shown:
    """Which jobs to show. Each call reads them from disk again."""

    known: KnownJob | None = None
    """The one job to show in detail."""
    state_dir: str | None = None
    store: str | None = None
    everywhere: bool = False
    check: bool = False
    """Whether to compare the items with those of a finished run."""

    @property
    def nothing(self) -> str:
        return "no jobs are known on this machine" if self.everywhere else "no jobs are known here"

    def views(self) -> list[JobView]:
        from agentrun.views.finding import catalogue_near
        from agentrun.views.jobs import list_everywhere, list_jobs, view_job

        if self.known is not None:
            return [view_job(self.known.store, self.known.name)]
        return (
            list_everywhere() if self.everywhere else list_jobs(catalogue_near(HERE, self.state_dir, store=self.store))
        )

    def as_json(self) -> Any:
        views = self.views()
        if self.known is None:
            return [view.as_json() for view in views]
        since = self._since(self.known, views[0])
        checked = {"since": since.as_json() if since is not None else None} if self.check else {}
        return views[0].as_json() | checked

    def lines(self, views: list[JobView], *, is_watched: bool = False) -> list[str]:
        from agentrun_cli.drawing.job import job_lines
        from agentrun_cli.drawing.table import job_table

        if self.known is None:
            return list(job_table(views, has_place=self.everywhere)) if views else []
        view = views[0]
        return list(
            job_lines(
                view,
                self.known,
                output=view.output or _output(self.known, view, self.store),
                state_dir=self.state_dir,
                store=self.store,
                since=self._since(self.known, view),
                is_watched=is_watched,
            )
        )

    def _since(self, known: KnownJob, view: JobView) -> Changes | None:
        from agentrun.views.since import changes_since

        return (
            changes_since(known.store, _open(known, self.store)) if self.check and view.status == "finished" else None
        )


def _output(known: KnownJob, view: JobView, store: str | None) -> Path | None:
    """Where an unfinished run will put its results; None where the job cannot be read now."""
    from agentrun.errors import AgentrunError

    if not view.date or known.store.folder is None:
        return None
    try:
        return _open(known, store).output_path(run_id=view.run_id, date=view.date)
    except AgentrunError:
        return None


def _open(known: KnownJob, store: str | None) -> Job:
    from agentrun.views.finding import open_job

    folder = known.store.folder
    state_dir = str(folder.parent) if folder is not None else None
    return open_job(known.name, cwd=HERE, state_dir=state_dir, store=store).job

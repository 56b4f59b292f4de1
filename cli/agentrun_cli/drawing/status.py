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

_NAMED = 8


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
        if self.store is not None:
            from agentrun.views.finding import asked_store

            asked = asked_store(self.store, HERE)
            return f"{asked.shown if asked is not None else self.store}: there are no jobs in this store"
        return "no jobs are known on this machine" if self.everywhere else "no jobs are known here"

    @property
    def how_to_begin(self) -> str:
        """What follows where there is nothing."""
        is_here = not self.everywhere and self.store is None
        return "; start with: agentrun init, or: agentrun start JOB" if is_here else ""

    def problems(self, views: list[JobView]) -> list[str]:
        """Why some of the listed jobs cannot be read, each reason once. Of one job in detail, its lines say so."""
        if self.known is not None:
            return []
        unread = [view.problem for view in views if view.status in ("damaged", "untrusted", "unreachable")]
        sealed = [view.job for view in views if view.figures_only and view.sealed]
        clear = [view.job for view in views if view.figures_only and not view.sealed]
        found = [f"{_names(sealed)}: sealed; without the key only the figures are shown"] if sealed else []
        if clear:
            seal = f"agentrun rekey {clear[0] if len(clear) == 1 else 'JOB'} --seal"
            found.append(f"{_names(clear)}: not sealed, but a key is set; only the figures are shown; to seal: {seal}")
        return list(dict.fromkeys([*unread, *found]))

    def views(self) -> list[JobView]:
        from agentrun.views.finding import catalogue_near
        from agentrun.views.jobs import list_everywhere, list_jobs, view_job

        if self.known is not None:
            return [view_job(self.known.store, self.known.name, run_id=self.known.run_id)]
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

        is_last = view.status == "finished" and not view.newest_run and not view.figures_only
        return changes_since(known.store, _open(known, self.store)) if self.check and is_last else None


def _names(jobs: list[str]) -> str:
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(jobs[:_NAMED]) + more


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

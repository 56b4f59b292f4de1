"""A job by its figures alone, for those without its key."""

from __future__ import annotations

from agentrun.checkpoint.figures import Figures
from agentrun.errors import AgentrunError, StoreError, UsageError
from agentrun.store.glance import Glance
from agentrun.store.port import Store
from agentrun.values.clock import age_seconds
from agentrun.views.job import JobView, Status


def run_ids(store: Store) -> list[str]:
    """The runs of a job whose records cannot be read, newest first."""
    if (seen := store.glance()) is None:
        return []
    return [one.run_id for one in (seen.unfinished, *seen.ended) if one is not None]


def view_figures(store: Store, name: str, *, problem: str, run_id: str = "") -> JobView:
    """The job, or its run `run_id`; `problem` is why no more can be read. UsageError if nothing is kept of that run."""
    try:
        seen = store.glance()
        assert seen is not None, "only a sealed store needs a key"
    except AgentrunError as error:
        status: Status = "unreachable" if isinstance(error, StoreError) else "damaged"
        return JobView(name, status, store.folder, store.where, problem=error.message)
    newest = seen.unfinished or (seen.ended[0] if seen.ended else None)
    shown = newest
    if run_id and (newest is None or run_id != newest.run_id):
        shown = next((one for one in seen.ended if one.run_id == run_id), None)
        if shown is None:
            raise UsageError(f"{name}: nothing is kept of run {run_id}; see: agentrun status {name}")
    if shown is None or newest is None:
        return JobView(name, "damaged", store.folder, store.where, problem=problem, sealed=seen.is_sealed)
    is_newest = shown is newest
    return JobView(
        job=shown.job or name,
        status=_status(seen, shown),
        folder=store.folder,
        where=store.where,
        total=shown.total,
        counts=shown.counts,
        last_completed=shown.last_completed if shown.status is None else shown.total - 1,
        run_id=shown.run_id,
        seq=shown.seq,
        started_at=shown.started_at,
        updated_at=shown.ended_at or shown.updated_at,
        age_seconds=age_seconds(shown.ended_at or shown.updated_at),
        holder=seen.holder if shown is seen.unfinished else None,
        usage=shown.usage,
        posted={"message": seen.posted} if seen.posted and is_newest else {},
        failed=shown.failed,
        waiting=shown.waiting,
        problem=problem,
        sealed=seen.is_sealed,
        figures_only=True,
        newest_run="" if is_newest else newest.run_id,
    )


def _status(seen: Glance, shown: Figures) -> Status:
    if shown.status is not None:
        return "finished" if shown.status == "finished" else "interrupted"
    if seen.holder is not None:
        return "running"
    if shown.counts.get("pending"):
        return "interrupted"
    return "waiting" if shown.counts.get("waiting") else "failed" if shown.counts.get("failed") else "interrupted"

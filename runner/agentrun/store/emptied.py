"""A store that no longer has a job that was in it: the disk may not be mounted, or the database may be a new one."""

from __future__ import annotations

from agentrun.errors import CheckpointError
from agentrun.store.local.pointer import noted_run
from agentrun.store.port import Store


def why_emptied(store: Store) -> str:
    """For a store without a run of the job: why that is wrong, as a launch would say it; empty if nothing is."""
    run_id = noted_run(store.folder, store.where) if store.folder is not None and store.where else ""
    if not run_id:
        return ""
    job = store.folder.name if store.folder is not None else ""
    return (
        f"{job} in {store.where}: has no run of this job, but {run_id} was there before; is it the right file or "
        f"server? If the job was cleared, or moved away, start over with --fresh"
    )


def check_not_emptied(store: Store) -> None:
    """For a store without a run of the job: CheckpointError if this machine knows that there was one."""
    if why := why_emptied(store):
        raise CheckpointError(why)

"""Removing the state of jobs: of one, or of all finished ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentrun.errors import AgentrunError, TrustError
from agentrun.outputs.claim import drop_claims
from agentrun.store.port import Catalogue, Store
from agentrun.views.jobs import JobView, view_job


@dataclass(frozen=True, slots=True)
class Clearable:
    """The finished jobs of a place, and those beside them that take a word of their own, each with the reason."""

    finished: tuple[JobView, ...]
    spared: tuple[tuple[JobView, str], ...]


def clearable_jobs(catalogue: Catalogue, *, older_than_seconds: float = 0.0) -> Clearable:
    """The jobs whose last run is finished, and ended at least that long ago."""
    finished, spared = [], []
    for name in catalogue.names():
        store = catalogue.store(name)
        try:
            # By the name of its place: that is what is removed, whatever the records call it.
            view = replace(view_job(store, name), job=name)
        except TrustError as error:
            view = JobView(name, "damaged", store.folder, store.where, problem=error.message)
        why = _why_spared(store, view)
        if view.status == "new" or (
            view.status not in ("damaged", "unreachable") and view.age_seconds < older_than_seconds
        ):
            continue
        if why:
            spared.append((view, why))
        else:
            finished.append(view)
    return Clearable(tuple(finished), tuple(spared))


def _why_spared(store: Store, view: JobView) -> str:
    if view.status in ("damaged", "unreachable"):
        return "its state cannot be read"
    if view.figures_only:
        return "sealed, and its key is not given" if view.sealed else "not sealed, but a key is set"
    if view.status == "moved":
        return "moved away, which can still be undone here"
    if view.status != "finished":
        return "unfinished"
    try:
        return "something is posted for its next start" if store.inbox() else ""
    except AgentrunError:
        return "its inbox cannot be read"


def clear_job(store: Store) -> None:
    """Remove everything of a job whose lock is held, but the results that it wrote."""
    drop_claims(store)
    store.clear()


def clear_finished(store: Store, seen: JobView) -> str:
    """Remove a job if it is still finished as it was `seen`; otherwise why it is left. BusyError if a runner is at
    work."""
    lease = store.lock(wait_seconds=0.0)
    try:
        view = view_job(store, seen.job)
        if why := _why_spared(store, view):
            return why
        if view.run_id != seen.run_id:
            # While a person was asked: what they agreed to remove was an older run.
            return "another run has finished meanwhile"
        clear_job(store)
        return ""
    finally:
        lease.release()

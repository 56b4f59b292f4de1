"""Jobs as anyone may see them, without the lock and while a runner may be at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from shlex import quote

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.checkpoint import Speed as Speed
from agentrun.checkpoint.checkpoint import Stopped as Stopped
from agentrun.checkpoint.sealing import MissingKeyError, NotSealedError
from agentrun.checkpoint.summary import OpenQuestion as OpenQuestion
from agentrun.checkpoint.summary import Summary as Summary
from agentrun.errors import AgentrunError, CheckpointError, DiskError, StoreError, TrustError, UsageError
from agentrun.money.budget import Purse, Totals
from agentrun.money.estimate import Estimate as Estimate
from agentrun.money.estimate import Range as Range
from agentrun.store.emptied import why_emptied
from agentrun.store.jobs import Jobs
from agentrun.store.moving import Moved as Moved
from agentrun.store.moving import read_mark
from agentrun.store.port import HistoryEvent as HistoryEvent
from agentrun.store.port import Holder as Holder
from agentrun.store.port import Reader, Store
from agentrun.store.registry import known_roots
from agentrun.system.process import boot_id
from agentrun.values.clock import age_seconds, now_seconds
from agentrun.values.until import pause_words
from agentrun.views.figures import view_figures
from agentrun.views.job import JobView as JobView
from agentrun.views.job import Status as Status
from agentrun.views.pace import read_pace


def view_job(store: Store, name: str, *, run_id: str = "") -> JobView:
    """The job in this store, or its run `run_id`. Never raises for what is stored there: a damaged state is a status
    too, and without the key of a sealed job its figures are shown. UsageError if nothing is kept of that run."""
    try:
        with store.reader() as reader:
            if run_id and run_id != reader.run_id:
                return _earlier(reader, run_id, name, store)
            if reader.checkpoint is not None:
                view = _unfinished(reader, reader.checkpoint, store)
            elif reader.summary is not None:
                view = _ended(reader, reader.summary, name, store)
            elif why := why_emptied(store):
                return JobView(name, "unreachable", store.folder, store.where, problem=why)
            else:
                return JobView(name, "new", store.folder, store.where)
        return _unless_moved(view, store)
    except (MissingKeyError, NotSealedError) as error:
        return view_figures(store, name, problem=error.message, run_id=run_id)
    except StoreError as error:
        return JobView(name, "unreachable", store.folder, store.where, problem=error.message)
    except (CheckpointError, DiskError) as error:
        return JobView(name, "damaged", store.folder, store.where, problem=error.message)


def _unless_moved(view: JobView, store: Store) -> JobView:
    mark = read_mark(store, run_id=view.run_id) if view.holder is None else None
    return replace(view, status="moved", moved=mark) if mark is not None else view


def _earlier(reader: Reader, run_id: str, name: str, store: Store) -> JobView:
    """A run that ended before the newest one; of its records, perhaps none are kept."""
    summary = next((one for one in reader.summaries if one.run_id == run_id), None)
    if summary is None:
        raise UsageError(f"{name}: nothing is kept of run {run_id}; see: agentrun runs {quote(name)}")
    return replace(_ended(reader, summary, name, store), newest_run=reader.run_id, posted={})


def view_run(store: Store, name: str, run_id: str) -> JobView:
    """A run of the job that has ended. CheckpointError if its records are not kept."""
    with store.reader(run_id=run_id) as reader:
        assert reader.summary is not None
        return _ended(reader, reader.summary, name, store)


def list_jobs(jobs: Jobs) -> list[JobView]:
    """All jobs that are known there, by name. One that others could tamper with is not read, and does not hide the
    others; a store that does not answer is the last."""
    names, missing = jobs.names_found()
    views = [list_job(jobs.store(name), name) for name in names]
    return [*views, JobView("", "unreachable", jobs.root, problem=missing)] if missing else views


def list_everywhere(environ: Mapping[str, str] | None = None) -> list[JobView]:
    """All jobs that this user has run on this machine, by state folder. A folder that others could tamper with is not
    read, and shown as untrusted."""
    found: list[JobView] = []
    for root in known_roots(environ):
        try:
            jobs = Jobs(root, environ=environ)
            found += [list_job(jobs.store(name), name) for name in jobs.names_here()]
        except AgentrunError as error:
            found.append(JobView("", "untrusted", root, problem=error.message))
    return found


def list_job(store: Store, name: str) -> JobView:
    """The job among others: one that others could tamper with is not read, and its problem says so."""
    try:
        return view_job(store, name)
    except UsageError as error:
        if not isinstance(error, TrustError):
            # Of its store: a wrong password, a missing extra.
            return JobView(name, "unreachable", store.folder, store.where, problem=error.message)
        return JobView(name, "damaged", store.folder, store.where, problem=error.message)


def _unfinished(reader: Reader, checkpoint: Checkpoint, store: Store) -> JobView:
    holder, context, counts = reader.holder(), checkpoint.context, checkpoint.counts
    status: Status = "interrupted"
    if holder is not None:
        status = "running"
    elif not counts.get("pending"):
        status = "waiting" if counts.get("waiting") else "failed" if counts.get("failed") else "interrupted"
    return JobView(
        job=checkpoint.job,
        status=status,
        folder=store.folder,
        where=store.where,
        total=checkpoint.total,
        counts=counts,
        last_completed=checkpoint.last_completed,
        run_id=checkpoint.run_id,
        launches=context.launches,
        seq=checkpoint.seq,
        started_at=checkpoint.started_at,
        updated_at=checkpoint.updated_at,
        age_seconds=age_seconds(checkpoint.updated_at),
        holder=holder,
        agent=context.agent,
        reference=context.identity.get("agent") or "",
        empty=context.empty,
        versions=context.versions,
        budget=context.budget,
        token_budget=context.token_budget,
        usage=checkpoint.usage if holder is not None else _after_crash(checkpoint),
        date=context.date,
        stopped=checkpoint.stopped if holder is None else None,
        why=_why(checkpoint) if holder is None else "",
        pace=read_pace(reader, checkpoint) if holder is not None and checkpoint.paused is None else None,
        paused=checkpoint.paused if holder is not None else None,
        speed=_speed(checkpoint) if holder is not None else None,
        posted=_posted(reader),
        running=checkpoint.running if holder else [],
        failed=checkpoint.failed,
        waiting=checkpoint.waiting,
        sealed=store.is_sealed,
    )


def _after_crash(checkpoint: Checkpoint) -> Totals:
    """The totals as the next launch will have them, with what the items in flight may have cost if the last one was
    killed."""
    context = checkpoint.context
    purse = Purse(structs.replace(checkpoint.usage), context.budget, context.token_budget)
    purse.charge_left(checkpoint.running)
    return purse.totals


def _speed(checkpoint: Checkpoint) -> Speed | None:
    speed = checkpoint.context.speed
    return speed if speed is not None and (speed.pace is not None or speed.number) else None


def _why(checkpoint: Checkpoint) -> str:
    """Why nobody is at work on an unfinished run."""
    if checkpoint.stopped is not None:
        return checkpoint.stopped.reason
    if checkpoint.paused is not None:
        return f"killed while it was {pause_words(checkpoint.paused.until, checkpoint.paused.reason, now_seconds())}"
    if not checkpoint.running:
        return "not known: the last launch wrote no last checkpoint"
    went = "the machine restarted" if checkpoint.context.boot not in ("", boot_id()) else "crashed"
    count = len(checkpoint.running)
    return f"killed, or {went}, with {count} {'item' if count == 1 else 'items'} in flight"


def _posted(reader: Reader) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in reader.inbox():
        kind = one.message.kind if one.message is not None else "unreadable"
        found[kind] = found.get(kind, 0) + 1
    return found


def _ended(reader: Reader, summary: Summary, name: str, store: Store) -> JobView:
    return JobView(
        job=summary.job or name,
        status="finished" if summary.is_finished else "interrupted",
        folder=store.folder,
        where=store.where,
        total=summary.total,
        counts=summary.counts,
        last_completed=summary.total - 1,
        run_id=summary.run_id,
        launches=summary.launches,
        started_at=summary.started_at,
        updated_at=summary.ended_at,
        age_seconds=age_seconds(summary.ended_at),
        agent=summary.agent or "",
        empty=summary.empty,
        versions=summary.versions,
        budget=summary.budget,
        token_budget=summary.token_budget,
        usage=summary.usage,
        output=summary.output.path if summary.output is not None else None,
        why="" if summary.is_finished else "given up by --fresh",
        posted=_posted(reader),
        sealed=store.is_sealed,
    )

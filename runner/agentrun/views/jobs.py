"""Jobs as anyone may see them, without the lock and while a runner may be at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec import structs, to_builtins

from agentrun.checkpoint.checkpoint import Checkpoint, Paused, Running
from agentrun.checkpoint.checkpoint import Speed as Speed
from agentrun.checkpoint.checkpoint import Stopped as Stopped
from agentrun.checkpoint.summary import OpenQuestion as OpenQuestion
from agentrun.checkpoint.summary import Summary as Summary
from agentrun.errors import AgentrunError, CheckpointError, DiskError, StoreError, TrustError, UsageError
from agentrun.money.budget import Purse, Totals
from agentrun.money.estimate import Estimate as Estimate
from agentrun.money.estimate import Range as Range
from agentrun.store.jobs import Jobs
from agentrun.store.port import Catalogue, Reader, Store
from agentrun.store.port import HistoryEvent as HistoryEvent
from agentrun.store.port import Holder as Holder
from agentrun.store.registry import known_roots
from agentrun.system.process import boot_id
from agentrun.values.clock import age_seconds, now_seconds, time_text
from agentrun.values.until import pause_words
from agentrun.views.pace import Pace, read_pace

Status = Literal[
    "running", "interrupted", "waiting", "failed", "finished", "damaged", "untrusted", "unreachable", "new"
]


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at a glance."""

    job: str
    status: Status
    folder: Path | None = None
    """Its folder on this machine, for a store that has one."""
    where: str = ""
    """The store that its state is in, if that is not the folder."""
    total: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    last_completed: int = -1
    run_id: str = ""
    launches: int = 0
    seq: int = 0
    started_at: str = ""
    updated_at: str = ""
    """The time of the last checkpoint, or of the end of a finished run."""
    age_seconds: float = 0.0
    holder: Holder | None = None
    agent: str = ""
    """The fingerprint of its agent."""
    reference: str = ""
    """Where the agent is, `file.py:name`; empty for a command, and once the run has ended."""
    empty: int = 0
    """How many done items have an empty output."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """How many done items each version of the agent made."""
    budget: float | None = None
    token_budget: int | None = None
    usage: Totals = field(default_factory=Totals)
    """What the run has used, with what crashes may have cost."""
    output: str | None = None
    date: str = ""
    """The date in the name of an unfinished run's output."""
    stopped: Stopped | None = None
    """How the last launch of an unfinished run ended; None if it was killed, and while a runner is at work."""
    why: str = ""
    """Why an unfinished run is not running."""
    pace: Pace | None = None
    """How fast the runner at work gets on, as soon as that is known; None in a pause."""
    paused: Paused | None = None
    """Until when, and for what, the runner at work waits."""
    speed: Speed | None = None
    """How fast a server lets the runner at work go, if it has asked to slow down."""
    posted: Mapping[str, int] = field(default_factory=dict)
    """What people posted and no runner has processed yet: how many of each kind of message."""
    running: Sequence[Running] = ()
    failed: Sequence[Sequence[int]] = ()
    waiting: Sequence[Sequence[int]] = ()
    problem: str = ""

    @property
    def cost(self) -> float | None:
        """US dollars so far, as far as they were reported; with what crashes may have cost."""
        return self.usage.cost

    @property
    def tokens(self) -> int:
        """In and out, together."""
        return self.usage.tokens

    def as_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "status": self.status,
            "folder": str(self.folder) if self.folder is not None else None,
            "store": self.where or None,
            "total": self.total,
            "counts": dict(self.counts),
            "last_completed": self.last_completed,
            "run_id": self.run_id,
            "launches": self.launches,
            "seq": self.seq,
            "started_at": self.started_at,
            "updated_at": self.updated_at,
            "age_seconds": self.age_seconds,
            "holder": asdict(self.holder) if self.holder is not None else None,
            "agent": self.agent,
            "reference": self.reference,
            "empty": self.empty,
            "versions": dict(self.versions),
            "cost": self.cost,
            "tokens": self.tokens,
            "budget": self.budget,
            "token_budget": self.token_budget,
            "usage": self.usage.as_json(),
            "output": self.output,
            "stopped": to_builtins(self.stopped),
            "why": self.why,
            "pace": self.pace.as_json() if self.pace is not None else None,
            "paused": to_builtins(self.paused),
            "speed": structs.asdict(self.speed) | {"at": time_text(self.speed.at)} if self.speed is not None else None,
            "posted": dict(self.posted),
            "running": [to_builtins(one) | {"age_seconds": age_seconds(one.since)} for one in self.running],
            "failed": [list(one) for one in self.failed],
            "waiting": [list(one) for one in self.waiting],
            "problem": self.problem,
        }


def view_job(store: Store, name: str) -> JobView:
    """The job in this store. Never raises for what is stored there: a damaged state is a status too."""
    try:
        with store.reader() as reader:
            if reader.checkpoint is not None:
                return _unfinished(reader, reader.checkpoint, store)
            if reader.summary is not None:
                return _ended(reader, reader.summary, name, store)
            return JobView(name, "new", store.folder, store.where)
    except StoreError as error:
        return JobView(name, "unreachable", store.folder, store.where, problem=error.message)
    except (CheckpointError, DiskError) as error:
        return JobView(name, "damaged", store.folder, store.where, problem=error.message)


def view_run(store: Store, name: str, run_id: str) -> JobView:
    """A run of the job that has ended. CheckpointError if its records are not kept."""
    with store.reader(run_id=run_id) as reader:
        assert reader.summary is not None
        return _ended(reader, reader.summary, name, store)


def list_jobs(catalogue: Catalogue) -> list[JobView]:
    """All jobs that are known there, by name. One that others could tamper with is not read, and does not hide the
    others."""
    return [list_job(catalogue.store(name), name) for name in catalogue.names()]


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
            # Of its store: a wrong password, a missing extra or key.
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
    )

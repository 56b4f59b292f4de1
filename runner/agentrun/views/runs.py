"""The runs of a job: the one that is unfinished, and the last ones that ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import split
from typing import Any, Literal

from agentrun.checkpoint.summary import Summary
from agentrun.errors import CheckpointError, UsageError
from agentrun.money.budget import Totals
from agentrun.store.emptied import check_not_emptied
from agentrun.store.port import Store
from agentrun.values.clock import seconds_between

Status = Literal["unfinished", "finished", "stopped", "abandoned"]


@dataclass(frozen=True, slots=True)
class RunView:
    """One run at a glance."""

    run_id: str
    number: int
    """0 for runs of versions that did not number them."""
    status: Status
    started_at: str
    ended_at: str = ""
    """Empty while it is unfinished."""
    seconds: float = 0.0
    """From its start to its end, or to its last checkpoint; the time between launches included."""
    total: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    ran: int = 0
    kept: int = 0
    launches: int = 0
    agent: str = ""
    """The fingerprint of its agent in its last launch."""
    usage: Totals = field(default_factory=Totals)
    output: str | None = None
    has_records: bool = False
    """Whether its results can still be read; of older runs only the summary is kept."""

    @property
    def cost(self) -> float | None:
        return self.usage.cost

    @property
    def shown(self) -> str:
        """How to name it: its number, or its id where it has none."""
        return str(self.number) if self.number else self.run_id

    def as_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "number": self.number or None,
            "status": self.status,
            "started_at": self.started_at,
            "ended_at": self.ended_at or None,
            "seconds": self.seconds,
            "total": self.total,
            "counts": dict(self.counts),
            "ran": self.ran,
            "kept": self.kept,
            "launches": self.launches,
            "agent": self.agent,
            "cost": self.cost,
            "usage": self.usage.as_json(),
            "output": self.output,
            "has_records": self.has_records,
        }


def list_runs(store: Store) -> list[RunView]:
    """The runs that are known, newest first."""
    with store.reader() as reader:
        checkpoint, ended = reader.checkpoint, list(reader.summaries)
    if checkpoint is None and not ended:
        check_not_emptied(store)
    views = [_ended(one, has_records=_has_records(store, one)) for one in ended]
    if checkpoint is not None:
        context = checkpoint.context
        unfinished = RunView(
            run_id=checkpoint.run_id,
            number=context.number,
            status="unfinished",
            started_at=checkpoint.started_at,
            seconds=seconds_between(checkpoint.started_at, checkpoint.updated_at),
            total=checkpoint.total,
            counts=checkpoint.counts,
            launches=context.launches,
            agent=context.agent,
            usage=checkpoint.usage,
            output=context.output or None,
            has_records=True,
        )
        views.insert(0, unfinished)
    return views


def find_run(runs: Sequence[RunView], ref: str, job: str) -> RunView:
    """The run that somebody means by its number, its id, or the beginning of its id. UsageError if it is none, or
    several; `job` names the job in a command."""
    see, where = f"see: agentrun runs {job}", job_alone(job)
    number = int(ref) if re.fullmatch("[1-9][0-9]{0,8}", ref) else -1
    exact = [one for one in runs if one.run_id == ref or one.number == number]
    found = exact or [one for one in runs if ref and one.run_id.startswith(ref)]
    if not found:
        raise UsageError(f"{where}: no run {ref} is known; {see}")
    if len(found) > 1:
        several = ", ".join(f"{one.shown} ({one.run_id})" for one in found[:5])
        raise UsageError(f"{where}: {ref} is the beginning of several runs: {several}; write more of it, or its number")
    return found[0]


def job_alone(job: str) -> str:
    """The job in a message, from how it is named in a command: without the flags."""
    return split(job)[0]


def check_records(run: RunView, job: str) -> RunView:
    """UsageError unless the results of the run can still be read."""
    if not run.has_records:
        raise UsageError(
            f"{job_alone(job)}: the records of run {run.shown} are no longer kept, only its summary; "
            f"see which runs still have theirs: agentrun runs {job}"
        )
    return run


def _ended(summary: Summary, *, has_records: bool) -> RunView:
    return RunView(
        run_id=summary.run_id,
        number=summary.number,
        status=summary.status,
        started_at=summary.started_at,
        ended_at=summary.ended_at,
        seconds=seconds_between(summary.started_at, summary.ended_at),
        total=summary.total,
        counts=summary.counts,
        ran=summary.ran,
        kept=summary.kept,
        launches=summary.launches,
        agent=summary.agent or "",
        usage=summary.usage,
        output=summary.output.path if summary.output is not None else None,
        has_records=has_records,
    )


def _has_records(store: Store, summary: Summary) -> bool:
    try:
        store.reader(run_id=summary.run_id).close()
    except CheckpointError:
        return False
    return True

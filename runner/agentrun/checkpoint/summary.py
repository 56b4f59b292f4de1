"""The beginning and the end of a run: its first checkpoint, and the summary kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.job.job import Job
from agentrun.values.clock import new_run_id, now_text


def new_checkpoint(job: Job) -> Checkpoint:
    from datetime import datetime

    # Local: it is the date that people expect in the name of tonight's output.
    date = datetime.now().astimezone().date().isoformat()
    return Checkpoint(job=job.name, run_id=new_run_id(), started_at=now_text(), context={"launches": 0, "date": date})


def summarise(checkpoint: Checkpoint, *, status: str) -> dict[str, Any]:
    """What is told at a launch's end, and kept of a run that has ended."""
    return {
        "version": 1,
        "job": checkpoint.job,
        "run_id": checkpoint.run_id,
        "status": status,
        "total": checkpoint.total,
        "counts": dict(checkpoint.counts),
        "launches": checkpoint.context.get("launches", 0),
        "agent": checkpoint.context.get("agent"),
        "versions": dict(checkpoint.context.get("versions", {})),
        "usage": dict(checkpoint.usage),
        "budget": checkpoint.context.get("budget"),
        "token_budget": checkpoint.context.get("token_budget"),
        "started_at": checkpoint.started_at,
        "ended_at": now_text(),
    }


def checkpoint_from(summary: Mapping[str, Any], *, seq: int) -> Checkpoint:
    """A run that begins with the records of the one in `summary`; `seq` is the highest among them."""
    # Local, as that of every new run: the date that people expect in the name of tonight's output.
    date = datetime.now().astimezone().date().isoformat()
    context = {"launches": 0, "date": date, "from_run": str(summary["run_id"])}
    job = str(summary.get("job", ""))
    return Checkpoint(job=job, run_id=new_run_id(), seq=seq, started_at=now_text(), context=context)

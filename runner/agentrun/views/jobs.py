"""What a job's folder says, read without its lock and while a runner may be at work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from agentrun.checkpoint.checkpoint import Checkpoint, decode_checkpoint
from agentrun.errors import CheckpointError
from agentrun.store.port import Holder
from agentrun.values.clock import age_seconds

Status = Literal["running", "interrupted", "waiting", "failed", "finished", "damaged", "new"]


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at a glance."""

    job: str
    status: Status
    folder: Path
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    last_completed: int = -1
    run_id: str = ""
    launches: int = 0
    seq: int = 0
    started_at: str = ""
    updated_at: str = ""
    """The last checkpoint, or the end of a finished run."""
    age_seconds: float = 0.0
    holder: Holder | None = None
    agent: str = ""
    """The fingerprint of its agent."""
    reference: str = ""
    """Where the agent is, `file.py:name`; empty for a command, and once the run has ended."""
    versions: dict[str, int] = field(default_factory=dict)
    """How many done items are of which version of the agent."""
    cost: float | None = None
    """US dollars so far, as far as they were reported; with what crashes may have cost."""
    tokens: int = 0
    """In and out, together."""
    budget: float | None = None
    token_budget: int | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    """All that is known of it: `cost`, of which `lost`; `input_tokens`, `output_tokens`, `requests`, `dearest`."""
    output: str | None = None
    running: list[dict[str, Any]] = field(default_factory=list)
    failed: list[list[int]] = field(default_factory=list)
    waiting: list[list[int]] = field(default_factory=list)
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def read_job_view(folder: Path) -> JobView:
    """Never raises for what is on disk: a damaged state is a status too."""
    name = folder.name
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointError as error:
        return JobView(name, "damaged", folder, problem=error.message)
    ended = read_summaries(folder)
    if checkpoint is None or (ended and ended[0].get("run_id") == checkpoint.run_id):
        return _of_summary(folder, ended[0]) if ended else JobView(name, "new", folder)
    holder = live_holder(folder)
    counts = dict(checkpoint.counts)
    status: Status = "interrupted"
    if holder is not None:
        status = "running"
    elif not counts.get("pending"):
        status = "waiting" if counts.get("waiting") else "failed"
    return JobView(
        job=checkpoint.job,
        status=status,
        folder=folder,
        total=checkpoint.total,
        counts=counts,
        last_completed=checkpoint.last_completed,
        run_id=checkpoint.run_id,
        launches=checkpoint.context.get("launches", 0),
        seq=checkpoint.seq,
        started_at=checkpoint.started_at,
        updated_at=checkpoint.updated_at,
        age_seconds=age_seconds(checkpoint.updated_at),
        holder=holder,
        agent=checkpoint.context.get("agent", ""),
        reference=checkpoint.context.get("identity", {}).get("agent", ""),
        versions=checkpoint.context.get("versions", {}),
        **_money(checkpoint.usage, checkpoint.context),
        running=checkpoint.running if holder else [],
        failed=checkpoint.failed,
        waiting=checkpoint.waiting,
    )


def _of_summary(folder: Path, summary: dict[str, Any]) -> JobView:
    output = summary.get("output")
    ended_at = str(summary.get("ended_at", ""))
    return JobView(
        job=str(summary.get("job", folder.name)),
        status="finished" if summary.get("status") == "finished" else "interrupted",
        folder=folder,
        total=summary.get("total", 0),
        counts=summary.get("counts", {}),
        last_completed=summary.get("total", 0) - 1,
        run_id=str(summary.get("run_id", "")),
        launches=summary.get("launches", 0),
        started_at=str(summary.get("started_at", "")),
        updated_at=ended_at,
        age_seconds=age_seconds(ended_at),
        agent=summary.get("agent") or "",
        versions=summary.get("versions", {}),
        **_money(summary.get("usage") or {}, summary),
        output=output.get("path") if isinstance(output, dict) else None,
    )


def _money(usage: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    return {
        "cost": usage.get("cost"),
        "tokens": (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0),
        "budget": limits.get("budget"),
        "token_budget": limits.get("token_budget"),
        "usage": dict(usage),
    }


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """state.json as it is now, or None."""
    path = folder / "state.json"
    try:
        return decode_checkpoint(path.read_bytes(), where=str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None


def read_summaries(folder: Path) -> list[dict[str, Any]]:
    """Of the runs that ended, newest first."""
    found = []
    for path in sorted((folder / "runs").glob("*.json"), reverse=True):
        try:
            found.append(orjson.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return [summary for summary in found if isinstance(summary, dict)]


def live_holder(folder: Path) -> Holder | None:
    """Who is at work on the job, if somebody is."""
    from agentrun.store.folder.lock import read_holder
    from agentrun.system.process import is_alive

    holder = read_holder(folder / "lock")
    if holder is None or not is_alive(holder.pid, holder.host, holder.started):
        return None
    return holder

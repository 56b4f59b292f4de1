"""One job at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec import structs, to_builtins

from agentrun.checkpoint.checkpoint import Paused, Running, Speed, Stopped
from agentrun.money.budget import Totals
from agentrun.store.holder import Holder
from agentrun.store.moving import Moved
from agentrun.values.clock import age_seconds, time_text
from agentrun.views.pace import Pace

Status = Literal[
    "running", "interrupted", "waiting", "failed", "finished", "moved", "damaged", "untrusted", "unreachable", "new"
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
    """Why nothing can be read of it; or why only its figures can."""
    sealed: bool = False
    """Whether its store keeps it sealed."""
    figures_only: bool = False
    """Whether only its figures are known: it is sealed with a key that is not given, or not sealed although one is."""
    moved: Moved | None = None
    """Where it was moved to."""
    newest_run: str = ""
    """The job's newest run, if that is not the one that is shown."""

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
            "sealed": self.sealed,
            "figures_only": self.figures_only,
            "moved": {"file": self.moved.file, "host": self.moved.host, "at": self.moved.at} if self.moved else None,
            "newest_run": self.newest_run or self.run_id,
        }

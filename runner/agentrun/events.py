"""What a launch tells its watchers. The library emits; only the command line prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrun.checkpoint.checkpoint import Checkpoint
    from agentrun.checkpoint.summary import Summary
    from agentrun.job.job import Job
    from agentrun.runs.plan import Plan


@dataclass(slots=True)
class Progress:
    """Counters that a live view may read at any time; they change only after a checkpoint is on disk."""

    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    waiting: int = 0
    running: int = 0
    settled_here: int = 0
    """Settled by this launch."""
    to_run: int = 0
    """What this launch set out to settle."""
    cost: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def settled(self) -> int:
        return self.done + self.failed + self.skipped

    def update(self, checkpoint: Checkpoint, *, settled: int = 0) -> None:
        """This checkpoint is on disk, with `settled` items that this launch has settled."""
        counts = checkpoint.counts
        self.total, self.running = checkpoint.total, len(checkpoint.running)
        self.done, self.failed = counts["done"], counts["failed"]
        self.skipped, self.waiting = counts["skipped"], counts["waiting"]
        self.cost = checkpoint.usage.cost
        self.settled_here += settled


@dataclass(frozen=True, slots=True)
class Planned:
    """Before anything is spent."""

    job: Job
    plan: Plan
    run_id: str
    launch: int
    output: Path
    resumed: bool
    last: Summary | None = None
    """For a new run: the summary of the one before."""
    notes: tuple[str, ...] = ()
    from_run: str = ""
    """For a new run that begins with the records of one that has finished: that one."""


@dataclass(frozen=True, slots=True)
class Began:
    """The launch's first checkpoint is on disk; items are started now."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Retrying:
    key: str
    cause: str
    attempt: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An item was set aside as failed, and that is on disk."""

    key: str
    cause: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """No new items from now on."""

    reason: str
    in_flight: int


@dataclass(frozen=True, slots=True)
class Warned:
    text: str


Event = Planned | Began | Retrying | Failed | Stopping | Warned
Watcher = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A watcher that does nothing."""

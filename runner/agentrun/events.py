"""Events of a launch, for its watchers. The library emits them; only the command line prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agentrun.checkpoint.summary import Summary
    from agentrun.job.job import Job
    from agentrun.runs.plan import Plan
    from agentrun.runs.units import Work


@dataclass(slots=True)
class Progress:
    """What a live view may read at any time, from any thread. Counters change only after a checkpoint is on disk."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """How many items are in which state."""
    total: int = 0
    running: int = 0
    settled_here: int = 0
    """Settled by this launch."""
    to_run: int = 0
    """What this launch set out to settle."""
    others: int = 0
    """How many pending items it leaves for another launch (--only)."""
    cost: float | None = None
    began: float = field(default_factory=time.monotonic)
    in_flight: Mapping[int, Work] = field(default_factory=dict)
    """By slot: the items in flight, as the slots have them."""
    held_back: str = ""
    """Why fewer items are in flight than may be; empty if nothing holds them back."""
    find_slowed: Callable[[], str] = lambda: ""

    @property
    def slowed(self) -> str:
        """How fast it goes where a server has asked to slow down: `20/s, 5 of 64 at a time`; empty if none has."""
        return self.find_slowed()

    @property
    def oldest(self) -> list[Work]:
        """The items in flight, the oldest first."""
        while True:
            try:
                taken = list(self.in_flight.values())
            except RuntimeError:  # a slot took an item meanwhile, in another thread
                continue
            # The others are taken already, and start when the next checkpoint is on disk.
            return sorted((work for work in taken if work.began), key=lambda work: work.began)

    @property
    def done(self) -> int:
        return self.counts.get("done", 0)

    @property
    def failed(self) -> int:
        return self.counts.get("failed", 0)

    @property
    def skipped(self) -> int:
        return self.counts.get("skipped", 0)

    @property
    def waiting(self) -> int:
        return self.counts.get("waiting", 0)

    @property
    def settled(self) -> int:
        return self.done + self.failed + self.skipped


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is made, and nothing is spent yet."""

    job: Job
    plan: Plan
    run_id: str
    launch: int
    output: Path
    resumed: bool
    last: Summary | None = None
    """For a new run: the summary of the run before it."""
    notes: tuple[str, ...] = ()
    from_run: str = ""
    """For a new run that starts with the records of a finished run: the id of that run."""


@dataclass(frozen=True, slots=True)
class Began:
    """The launch's first checkpoint is on disk, and its first items are started."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Retrying:
    """An attempt failed, and the next one starts after a wait."""

    key: str
    cause: str
    attempt: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Progressed:
    """An item in flight reported what it is doing; an empty text when its attempt is over.

    Of an item that reports often only some texts are emitted, and always the last.
    """

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Settled:
    """An item is done, failed or skipped, and that is on disk."""

    key: str
    kind: Literal["done", "failed", "skipped"]
    cost: float | None = None
    """What its attempts cost, in US dollars, where that is known."""


@dataclass(frozen=True, slots=True)
class Failed:
    """An item was set aside as failed, and that is on disk."""

    key: str
    cause: str


@dataclass(frozen=True, slots=True)
class Asked:
    """An item waits for a person's answer, and that is on disk."""

    key: str
    question: str


@dataclass(frozen=True, slots=True)
class Pausing:
    """The launch waits in place, for a quota or a server; nothing is in flight."""

    reason: str
    until: str
    """A time in ISO form; empty when it continues."""
    probes: bool = False
    """Nobody knows when that passes: it is tried at that time, again and again."""
    again: bool = False
    """It was tried, and has not passed."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """No new items are started from now on."""

    reason: str
    in_flight: int
    grace_seconds: float | None = None
    """How long the items in flight may take; 0 if they are ended at once, None if they are finished, however long that
    takes."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another runner has the job, and the launch waits for it."""

    holder: str
    """Who that is: `pid 4312 on larch, since 22:03`."""
    seconds: float
    """How long it waits at most."""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that people should know, and that stops nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The launch is over, however it ended. Always the last event."""

    exit_code: int
    reason: str = ""
    """Why the run is not complete, or the error that ended the launch; empty after clean completion."""


Event = (
    Planned | Began | Retrying | Progressed | Settled | Failed | Asked | Pausing | Stopping | Waiting | Warned | Ended
)
Watcher = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A watcher that does nothing."""


class Watchers:
    """Several watchers as one. A watcher that raises an Exception is reported to the others once, and never fatal."""

    def __init__(self, watchers: Iterable[Watcher]) -> None:
        self._watchers = tuple(watchers)
        self._reported: set[int] = set()
        """Positions of the watchers whose failure was reported."""

    def __call__(self, event: Event) -> None:
        for position, watcher in enumerate(self._watchers):
            try:
                watcher(event)
            except Exception as error:
                if position not in self._reported:
                    self._reported.add(position)
                    self._report(f"a watcher failed at {type(event).__name__}: {type(error).__name__}: {error}")

    def _report(self, text: str) -> None:
        if len(self._reported) == len(self._watchers):
            import logging

            logging.getLogger("agentrun").warning(text)
        else:
            self(Warned(text))

"""A report: all that its forms show, as values. Text that comes from users' data is as it was: the forms escape it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agentrun.values.clock import local_time
from agentrun.views.jobs import JobView

Tone = Literal["good", "bad", "warn", "busy", "dim", ""]


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the head."""

    name: str
    value: str
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do, with the command that does it; empty where there is none."""

    words: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """An item in a list, with what is worth knowing beside it."""

    key: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Items with the same cause of failure, or the same question."""

    text: str
    count: int
    items: Sequence[Listed] = ()
    """The first of them."""
    where: str = ""
    """The user's own line that raised it."""
    code: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class Outlier:
    """An item that took long or cost much."""

    key: str
    value: float
    attempts: int
    tokens: int = 0
    state: str = "done"


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait for a quota, or for a server that was down."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """One launch of the run."""

    number: int
    began: float
    ended: float
    settled: int
    how: str
    is_crash: bool = False
    pauses: Sequence[Pause] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A value over the time of the run: one number for each slice of it, at the end of the slice."""

    values: Sequence[float]
    jumps: Mapping[int, float] = field(default_factory=dict)
    """By slice: the part of its rise that was not earned but lost, in a crash."""

    @property
    def last(self) -> float:
        return self.values[-1] if self.values else 0.0

    @property
    def most(self) -> float:
        return max(self.values, default=0.0)


@dataclass(frozen=True, slots=True)
class Night:
    """The run over time."""

    began: float
    ended: float
    settled: Curve
    failed: Curve
    in_flight: Curve
    cost: Curve | None
    """None if no cost was reported."""
    idle: Sequence[tuple[float, float]] = ()
    """When nothing was in flight."""
    crashes: Sequence[float] = ()
    seconds: Sequence[float] = ()
    """How long the last attempt of each done item took, sorted."""
    concurrency: int | None = None

    @property
    def span(self) -> float:
        return max(self.ended - self.began, 1e-3)


@dataclass(frozen=True, slots=True)
class Report:
    """One run of a job, as it was when the report was made."""

    view: JobView
    made_at: float
    folder: str
    """Where the commands work."""
    verdict: str
    tone: Tone
    words: str
    """How it stands, in a sentence."""
    tiles: Sequence[Tile]
    advice: Sequence[Advice]
    failures: Sequence[Group]
    failed: int
    causes: int
    """How many causes there are; the first of them are in `failures`."""
    questions: Sequence[Group]
    waiting: int
    answer: str
    """The command that answers questions."""
    night: Night
    slowest: Sequence[Outlier]
    most_expensive: Sequence[Outlier]
    facts: Sequence[tuple[str, str]]
    launches: Sequence[LaunchFacts]
    note: str = ""
    """What is odd about the items."""

    @property
    def date(self) -> str:
        """The local date of the run's start."""
        return self.view.date or local_time(self.night.began).date().isoformat()

    @property
    def title(self) -> str:
        view = self.view
        return f"{view.job}: {view.counts.get('done', 0):,} of {view.total:,} done"

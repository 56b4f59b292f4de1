"""How fast a run gets on, seen from outside: from the times of its checkpoints in the log of launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentrun.values.clock import age_seconds, now_seconds, time_text

if TYPE_CHECKING:
    from agentrun.checkpoint.checkpoint import Checkpoint
    from agentrun.store.port import Reader

WINDOW_SECONDS, WINDOW_ITEMS = 60.0, 2
"""The rate is that of the last minute, or of as long as it took to settle two items."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Items settled in a second, and how long the rest will take."""

    per_second: float
    left_seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "per_minute": self.per_second * 60,
            "left_seconds": self.left_seconds,
            "ends_at": time_text(now_seconds() + self.left_seconds),
        }


def read_pace(reader: Reader, checkpoint: Checkpoint) -> Pace | None:
    """The pace of the launch at work; None if nothing was settled yet."""
    counts = checkpoint.counts
    pending = counts.get("pending", 0)
    settled = checkpoint.total - pending - counts.get("waiting", 0)
    points: list[tuple[float, int]] = []
    for event in reader.history(recent=True):
        if event.event in ("launch", "restore"):
            # The launch's first checkpoint comes just before it.
            del points[:-1]
        elif event.settled is not None:
            points.append((age_seconds(event.at), event.settled))
    return pace_of(points, settled=settled, left=max(pending - checkpoint.context.others, 0))


def pace_of(points: list[tuple[float, int]], *, settled: int, left: int) -> Pace | None:
    """`points` are checkpoints of this launch, oldest first: how old each is, and how many items were settled then."""
    since = None
    for age, count in reversed(points):
        since = age, settled - count
        if age >= WINDOW_SECONDS and settled - count >= WINDOW_ITEMS:
            break
    if since is None or since[1] < 1 or since[0] <= 0:
        return None
    per_second = since[1] / since[0]
    return Pace(per_second, left / per_second)

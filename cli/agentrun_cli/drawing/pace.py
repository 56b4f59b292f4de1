"""How fast a launch settles items, and how long it still takes."""

from __future__ import annotations

from collections import deque

from agentrun.events import Progress

SHOWN_SECONDS = 60.0
"""The view shows the rate of the last minute."""
TRUSTED_SECONDS = 600.0
"""The time left is told from a longer time: items that take minutes settle in bursts."""
LEAST_SECONDS = 1.0
"""Before that, nothing is known."""


class Pace:
    """Looks at the counters now and then, and remembers ten minutes of them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._seen: deque[tuple[float, int]] = deque([(progress.began, 0)])

    def look(self, now: float) -> None:
        if now - self._seen[-1][0] >= LEAST_SECONDS:
            self._seen.append((now, self._progress.settled_here))
        while len(self._seen) > 1 and now - self._seen[1][0] >= TRUSTED_SECONDS:
            self._seen.popleft()

    def per_second(self, now: float, within_seconds: float = SHOWN_SECONDS) -> float | None:
        """Items settled in a second; where none was within that time, in a longer one. None if unknown."""
        settled = self._progress.settled_here
        if not settled or now - self._progress.began < LEAST_SECONDS:
            return None
        for seconds in (within_seconds, TRUSTED_SECONDS):
            at, before = next(one for one in reversed(self._seen) if now - one[0] >= seconds or one is self._seen[0])
            if settled > before and now > at:
                return (settled - before) / (now - at)
        return settled / (now - self._progress.began)

    def seconds_left(self, now: float) -> float | None:
        """Until everything is settled that this launch can settle. None if unknown."""
        progress, rate = self._progress, self.per_second(now, TRUSTED_SECONDS)
        if rate is None:
            return None
        pending = progress.total - progress.settled - progress.waiting - progress.others
        return max(pending, progress.to_run - progress.settled_here, 0) / rate


def left_words(seconds: float) -> str:
    from agentrun.values.units import format_duration

    if seconds < 1:
        return "nearly there"
    if seconds < 120:
        return f"{round(seconds)}s left"
    return f"{round(seconds / 60)}m left" if seconds < 3570 else f"{format_duration(seconds)} left"

"""Not more than so many attempts begun in a time, evenly spaced."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable


class Pace:
    def __init__(self, seconds_between: float, *, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._seconds_between = seconds_between
        self._sleep = sleep
        self._next = 0.0

    async def wait(self) -> None:
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._seconds_between
        if at > now:
            await self._sleep(at - now)

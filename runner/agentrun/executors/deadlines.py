"""Deadlines: one timer for all that is under way.

A timer an attempt is dear, as nearly all of them are cancelled again. Those that have the same time end in the order in
which they began, so that only the oldest needs one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """Calls `overdue(what)` for what has begun and not ended after `seconds`."""

    def __init__(self, seconds: float, overdue: Callable[[T], None]) -> None:
        self._seconds = seconds
        self._overdue = overdue
        self._loop = asyncio.get_running_loop()
        self._at: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: T) -> None:
        self._at[what] = at = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._look)

    def end(self, what: T) -> None:
        self._at.pop(what, None)

    def close(self) -> None:
        self._at.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._at:
            what = next(iter(self._at))
            if (at := self._at[what]) > now:
                self._timer = self._loop.call_at(at, self._look)
                return
            del self._at[what]
            self._overdue(what)

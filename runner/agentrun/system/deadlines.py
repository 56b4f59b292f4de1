"""Deadlines that a frozen process does not miss.

A process that was frozen (Ctrl-Z, a paused container or machine) finds all its timers due when it continues, and with
them what arrived meanwhile. So a deadline that fires late is given its whole time once more; and every deadline lets
the loop take some turns before it counts, in which what has arrived is read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LATE_SECONDS = 0.5
"""A timer that fires later than this was frozen, or its loop was held up."""
TURNS = 100
"""Turns of the loop before a deadline counts; each reads up to 256 KiB from every connection."""


class Deadline:
    """Calls `expire` once, when `seconds` have passed since it was made or restarted; None is never."""

    def __init__(self, seconds: float | None, expire: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._expire = expire
        self._handle: asyncio.Handle | None = None
        self.has_expired = False
        self.restart(seconds)

    def restart(self, seconds: float | None) -> None:
        """Measure these seconds, from now."""
        self.close()
        self._is_last = False
        if seconds is not None:
            self._start(seconds)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        self._handle = self._loop.call_at(at, self.fire, at, seconds)

    def fire(self, at: float, seconds: float) -> None:
        """The seconds were over at this time."""
        if self._loop.time() - at > LATE_SECONDS and not self._is_last:
            self._is_last = True
            self._start(seconds)
        else:
            self._look(TURNS)

    def _look(self, turns: int) -> None:
        if turns:
            self._handle = self._loop.call_soon(self._look, turns - 1)
        else:
            self._handle, self.has_expired = None, True
            self._expire()


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[Deadline]:
    """Cancel the block, and raise TimeoutError, when its deadline expires."""
    async with asyncio.timeout(None) as clock:
        deadline = Deadline(seconds, lambda: clock.reschedule(asyncio.get_running_loop().time()))
        try:
            yield deadline
        finally:
            deadline.close()


def call_after(seconds: float, function: Callable[[], object]) -> None:
    """Call the function in a thread of its own: for what must happen even if the loop is held up."""

    def wait() -> None:
        at = time.monotonic() + seconds
        time.sleep(seconds)
        if time.monotonic() - at > LATE_SECONDS:
            time.sleep(seconds)
        function()

    threading.Thread(target=wait, daemon=True, name="agentrun-deadline").start()

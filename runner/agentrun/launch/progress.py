"""Progress texts of items in flight, passed on to the watchers at a bounded rate."""

from __future__ import annotations

import asyncio

from agentrun.events import Progressed, Watcher

SECONDS_BETWEEN = 0.2
"""The least time between two progress events of one item."""
TEXT_LIMIT = 500


class ProgressPace:
    """Decides when to show an item's progress text: not more often than `seconds_between`, and always the last one."""

    def __init__(self, seconds_between: float = SECONDS_BETWEEN) -> None:
        self._seconds_between = seconds_between
        self._shown: dict[str, tuple[float, str]] = {}
        self._held: dict[str, str] = {}

    @property
    def next_at(self) -> float | None:
        """When a text that is held back may be shown; None if there is none."""
        return min((self._shown[key][0] + self._seconds_between for key in self._held), default=None)

    def offer(self, key: str, text: str, now: float) -> bool:
        """Whether to show the text now. A text that came too soon is held, in place of an earlier one."""
        shown = self._shown.get(key)
        if shown is not None:
            at, last = shown
            if text == last:
                self._held.pop(key, None)
                return False
            if now < at + self._seconds_between:
                self._held[key] = text
                return False
        self._held.pop(key, None)
        self._shown[key] = (now, text)
        return True

    def due(self, now: float) -> list[tuple[str, str]]:
        """The held texts to show now, as (key, text)."""
        held = [(key, text) for key, text in self._held.items() if now >= self._shown[key][0] + self._seconds_between]
        return [(key, text) for key, text in held if self.offer(key, text, now)]

    def remove(self, key: str) -> bool:
        """Forget an item that is no longer in flight; whether a text of it was shown, and should be cleared."""
        self._held.pop(key, None)
        shown = self._shown.pop(key, None)
        return shown is not None and shown[1] != ""


class ProgressReports:
    """Turns progress messages into events. It costs nothing for an attempt that sends none."""

    def __init__(self, watcher: Watcher, *, pace: ProgressPace | None = None) -> None:
        self._watcher = watcher
        self._pace = pace or ProgressPace()
        self.keys: set[str] = set()
        """The items in flight that have reported something."""
        self._timer: asyncio.TimerHandle | None = None

    def report(self, key: str, text: str) -> None:
        loop = asyncio.get_running_loop()
        text = text[:TEXT_LIMIT]
        self.keys.add(key)
        if self._pace.offer(key, text, loop.time()):
            self._watcher(Progressed(key, text))
        self._schedule(loop)

    def end(self, key: str) -> None:
        """The item's attempt is over: its text is cleared."""
        if key in self.keys:
            self.keys.discard(key)
            if self._pace.remove(key):
                self._watcher(Progressed(key, ""))
            if self._timer is not None and self._pace.next_at is None:
                self._timer.cancel()
                self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None and (at := self._pace.next_at) is not None:
            self._timer = loop.call_at(at, self._show_held)

    def _show_held(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for key, text in self._pace.due(loop.time()):
            self._watcher(Progressed(key, text))
        self._schedule(loop)

"""Waiting for a place that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from agentrun.errors import StoreError

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 2.0
T = TypeVar("T")


class Patience:
    """Waits between tries, for so many seconds from the first error on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline: float | None = None
        self._pause = _SHORTEST_SECONDS

    def after(self, error: StoreError) -> None:
        """Wait before the next try; raises the error again when it was the last one."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if now >= self._deadline:
            raise error
        time.sleep(min(self._pause, self._deadline - now))
        self._pause = min(self._pause * 2, _LONGEST_SECONDS)

    def insist(self, call: Callable[[], T]) -> T:
        """What the place answers, as soon as it does. Only for calls that do no harm when they are made twice."""
        while True:
            try:
                return call()
            except StoreError as error:
                self.after(error)

"""Waiting for a place that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from agentrun.checkpoint.sealing import MissingKeyError
from agentrun.errors import BrokenStoreError, StoreError, UsageError
from agentrun.values.units import format_duration

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.02, 2.0
T = TypeVar("T")


class Patience:
    """Waits between tries, for so many seconds from the first error of an outage on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.is_accepted = False
        """Whether the place has accepted a write of this runner: from then on a password that it refuses, because that
        was changed or has run out, is an outage like any other."""
        self.end_outage()

    def end_outage(self) -> None:
        """The place has done what it was asked for: at the next error, the time counts from there."""
        self._deadline: float | None = None
        self._pause = _SHORTEST_SECONDS
        self.trouble = ""
        """Why the place does not answer; empty if it does."""

    def after(self, error: StoreError) -> None:
        """Wait before the next try; raises the error when that was the last one, or is for good."""
        if isinstance(error, BrokenStoreError) or not self._seconds:
            raise error
        now = time.monotonic()
        if self._deadline is None:
            self._deadline, self.trouble = now + self._seconds, error.message
        if now >= self._deadline:
            raise StoreError(
                f"{error.message} (given up after {format_duration(self._seconds)}; what was committed before is kept: "
                f"resume when the store answers)"
            ) from error
        time.sleep(min(self._pause, self._deadline - now))
        self._pause = min(self._pause * 2, _LONGEST_SECONDS)

    def insist(self, call: Callable[[], T]) -> T:
        """What the place answers, as soon as it does. Only for calls that do no harm when they are made twice."""
        while True:
            try:
                return self.ask(call)
            except StoreError as error:
                self.after(error)

    def ask(self, call: Callable[[], T]) -> T:
        """What the place answers, in one try."""
        try:
            return call()
        except UsageError as error:
            if self.is_accepted and not isinstance(error, MissingKeyError):
                raise StoreError(error.message) from error
            raise

"""A limit on the time that a server may be silent; psycopg itself waits for ever."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow
from psycopg.waiting import Wait

T = TypeVar("T")


class Overdue(Exception):
    """The server was silent for too long. Its answer may still come, so the connection is of no use any more."""


class WatchedConnection(psycopg.Connection[TupleRow]):
    """A connection whose statements raise Overdue instead of waiting for ever."""

    silence_seconds = 15.0
    """How long the server may neither take nor send a byte."""
    sending_seconds = 0.0
    """How much longer it may be silent at first: what was sent may be on its way."""
    clock: Callable[[], float] = time.monotonic

    # psycopg calls it for every statement; in some versions with more arguments.
    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """The generator with the limit. It yields what to wait for, and is resumed then, or after 0.1 s."""
        deadline = self.clock() + self.silence_seconds + self.sending_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if self._has_moved(wanted):
                    deadline = max(deadline, self.clock() + self.silence_seconds)
                elif self.clock() > deadline:
                    raise Overdue
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result

    def _has_moved(self, wanted: int) -> bool:
        """Whether a byte can be received or sent now."""
        # psycopg says so, too, but before 3.2.11 also of a server that is silent.
        poll = select.poll()
        poll.register(
            self.fileno(), (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
        )
        return bool(poll.poll(0))

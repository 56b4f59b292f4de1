"""A limit on the time that a server may take to answer, for libraries that wait for ever."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Watchdog:
    """Cuts a connection when an answer is overdue. Whoever waits for that answer then gets the library's error.

    `fd` is the connection's socket. The watchdog has a descriptor of its own for it, which stays valid when the library
    closes the other one.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._sleeps, self._is_closed = False, False
        self.has_cut = False
        """Whether it was cut, for good."""
        threading.Thread(target=self._watch, name="agentrun-watchdog", daemon=True).start()

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """What is done within must not take longer."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            # Only a thread without a deadline is woken up: many short calls cost next to nothing.
            if self._sleeps:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._deadline = None

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            self._socket.close()

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                left = self._deadline - time.monotonic() if self._deadline is not None else None
                if left is not None and left <= 0:
                    self._cut()
                    return
                self._sleeps = left is None
                self._changed.wait(left)

    def _cut(self) -> None:
        self.has_cut = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # cut already, by the other side

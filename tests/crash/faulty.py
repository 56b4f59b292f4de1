"""Faults of messages: dropped, doubled, delayed past the attempt, or swapped with a neighbour's.

What is between the two ends of a channel calls `Faults.pass_on` for each message, in a thread of its own.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

KINDS = ("dropped", "doubled", "delayed", "swapped", "forked", "over")
"""`forked`: a child speaks for its parent. `over`: an attempt that is over is answered once more."""
TIMEOUT_SECONDS = 0.4
DELAY_SECONDS = TIMEOUT_SECONDS + 0.15
PARTNER_SECONDS = 0.2

Write = Callable[[bytes], None]


@dataclass(slots=True, eq=False)
class _Held:
    message: bytes
    is_swapped: threading.Event = field(default_factory=threading.Event)


class Faults:
    """One kind of fault, again and again. `share` of the messages are struck, or of whatever else `strikes` is asked
    about."""

    def __init__(self, kind: str, seed: int, *, share: float) -> None:
        self.kind = kind
        self.count = 0
        self._chance = random.Random(f"{kind} {seed}")
        self._share = share
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def strikes(self, kind: str, *, share: float | None = None) -> bool:
        """Whether this fault happens here; it is counted."""
        if kind != self.kind:
            return False
        with self._lock:
            is_struck = self._chance.random() < (self._share if share is None else share)
            self.count += is_struck
        return is_struck

    def pick(self, count: int) -> int:
        with self._lock:
            return self._chance.randrange(count)

    def pass_on(self, way: str, message: bytes, write: Write) -> None:
        """Write the message, unless a fault strikes; swapped are messages that go the same way, of two attempts."""
        if self.strikes("dropped"):
            return
        if self.kind == "swapped":
            message = self._swap(way, message)
        elif self.strikes("doubled"):
            write(message)
        elif self.strikes("delayed"):
            time.sleep(DELAY_SECONDS)
        write(message)

    def _swap(self, way: str, message: bytes) -> bytes:
        with self._lock:
            if (partner := self._held.pop(way, None)) is not None:
                partner.message, message = message, partner.message
                partner.is_swapped.set()
                self.count += 2
                return message
            if self._chance.random() >= self._share:
                return message
            held = self._held[way] = _Held(message)
        held.is_swapped.wait(PARTNER_SECONDS)
        with self._lock:
            if self._held.get(way) is held:
                del self._held[way]
        return held.message


Read = Callable[[], bytes]
"""The next message; empty at the end."""


def forward(faults: Faults, way: str, read: Read, write: Write, *, then: Callable[[], None]) -> None:
    """Forward what is read in a thread, until the end or an error of either side."""

    def work() -> None:
        try:
            while message := read():
                faults.pass_on(way, message, write)
        except (OSError, ValueError):  # a side has gone
            pass
        finally:
            then()

    threading.Thread(target=work, daemon=True).start()


def close(*connections: socket.socket) -> None:
    """Close them for both sides, also where another thread reads from one."""
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()

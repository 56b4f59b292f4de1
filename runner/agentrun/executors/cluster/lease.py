"""The lease of a host: how the runner knows, without hearing of it, that nothing of a host is alive.

The host pings at its own time t; the runner notes that the lease ends `lease` seconds from now, and only then sends the
pong; with it the host's lease lasts until t + lease. The ping was on its way for some time, so **the host's lease
always ends before the time that the runner has noted**, however late a pong arrives. Only pongs extend it, and no
attempt is sent before the first one. Each side measures on its own clock; `MARGIN_SECONDS` is for clocks that run at
different speeds, and for the killing.
"""

from __future__ import annotations

from agentrun.checkpoint.checkpoint import MARGIN_SECONDS as MARGIN_SECONDS

PINGS_PER_LEASE = 4


class HostLease:
    """The host's own view. Times are of a clock that also counts while the machine sleeps."""

    def __init__(self, seconds: float, *, now: float) -> None:
        self._seconds = seconds
        self._sent: dict[int, float] = {}
        self._number = 0
        self._next_ping = now
        self.deadline = now + seconds
        """When everything must have ended, unless a pong comes before."""

    def is_over(self, now: float) -> bool:
        return now >= self.deadline

    def ping(self, now: float) -> int | None:
        """The number of the ping to send at this moment; None if none is due."""
        if now < self._next_ping:
            return None
        self._number += 1
        self._sent[self._number] = now
        self._next_ping = now + self._seconds / PINGS_PER_LEASE
        return self._number

    def pong(self, number: int) -> bool:
        """Whether this pong extends the lease: counted from its ping, never from its own arrival."""
        sent = self._sent.pop(number, None)
        if sent is None or sent + self._seconds <= self.deadline:
            return False
        self.deadline = sent + self._seconds
        for earlier in [one for one in self._sent if one < number]:
            del self._sent[earlier]
        return True

    def seconds_to_next(self, now: float) -> float:
        """How long nothing is due."""
        return max(0.0, min(self._next_ping, self.deadline) - now)


class LeaseView:
    """The runner's view of one host's lease."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether a pong was sent: before that, nothing may be run there."""
        return self._until is not None

    def note_ping(self, now: float) -> None:
        """A ping has arrived. To be called before its pong is sent."""
        self._until = now + self._seconds

    def seconds_left(self, now: float) -> float:
        """How long something of the host may still be alive; no pong may be sent while this is waited for."""
        return 0.0 if self._until is None else max(0.0, self._until + MARGIN_SECONDS - now)

"""The limits that a job sets itself: attempts a minute (`rate`), tokens a minute (`tokens`), from launch to launch.

A meter has one number: the time at which everything that was taken would be used up at the even pace of the limit.
Something more may be taken while that time is less than a tenth of the limit ahead (GCRA).

**In no stretch as long as the limit's own (a minute) is more taken than the limit and a tenth of it, wherever a launch
is killed.** Each checkpoint has that time. An attempt begins after the checkpoint that names its item, and not every
attempt is followed by one: a launch that finds items in flight, because the last one died, assumes that each of
them has made all its attempts since then.

What an attempt will take in tokens is not known before: it takes the mean of the last 20 items, and when it has ended
the difference is given back, or taken as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from agentrun.checkpoint.checkpoint import RunContext
from agentrun.job.job import Job
from agentrun.values.units import Rate

BURST = 0.1
RECENT = 20
CLOCK_SECONDS = 1e-6
"""A clock does not tell times apart that are closer together."""
LOOK_SECONDS = 1.0
"""What was given back may be there earlier than it seemed."""


class Meter:
    """Times are seconds of the clock that is given."""

    def __init__(self, limit: Rate) -> None:
        self._seconds = limit.per_seconds
        self._seconds_each = limit.per_seconds / limit.count
        self.burst = max(1.0, limit.count * BURST)
        self.used_until = 0.0

    def wait(self, now: float, amount: float = 1.0) -> float:
        """How long until so much may be taken; more than a burst is let through when nothing else was taken."""
        ahead = max(self.used_until - now, 0.0) + min(amount, self.burst) * self._seconds_each
        return ahead - self.burst * self._seconds_each

    def take(self, now: float, amount: float = 1.0) -> None:
        """A negative amount gives back."""
        self.used_until = max(self.used_until, now) + amount * self._seconds_each

    def restore(self, until: float, now: float, *, taken: float, is_corrected: bool = False) -> None:
        """What another launch has taken until then, and perhaps so much since. If amounts are corrected afterwards, it
        may be more than a burst."""
        full = now + self.burst * self._seconds_each
        # A clock that was set back must not make us wait for as long.
        longest = max(full, now + self._seconds) if is_corrected else full
        self.used_until = max(min(until, longest), min(max(until, now) + taken * self._seconds_each, full))


class Meters:
    """The meters of a launch, as attempts meet them. Those that wait begin in order."""

    def __init__(
        self, job: Job, *, stops_within: Callable[[float], Awaitable[bool]], clock: Callable[[], float] = time.time
    ) -> None:
        """`stops_within` waits so many seconds; it returns True as soon as the launch stops."""
        self._rate = Meter(job.rate) if job.rate is not None else None
        self._tokens = Meter(job.tokens) if job.tokens is not None else None
        self._attempts_each = job.retries + 1
        self._clock = clock
        self._stops_within = stops_within
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._turn = asyncio.Lock()

    async def enter(self) -> float | None:
        """Wait until an attempt may begin; returns the tokens that it has taken, None if the launch stops."""
        async with self._turn:
            while (seconds := self._wait()) > CLOCK_SECONDS:
                if await self._stops_within(min(seconds, LOOK_SECONDS)):
                    return None
            now, tokens = self._clock(), self._expected()
            if self._rate is not None:
                self._rate.take(now)
            if self._tokens is not None:
                self._tokens.take(now, tokens)
            return tokens

    def leave(self, taken: float, tokens: int | None) -> None:
        """An attempt has ended that had taken so many tokens, and has used this."""
        if self._tokens is not None:
            self._tokens.take(self._clock(), (tokens or 0) - taken)
            if tokens:
                self._recent.append(tokens)

    def _wait(self) -> float:
        now = self._clock()
        waits = [self._rate.wait(now)] if self._rate is not None else []
        if self._tokens is not None:
            waits.append(self._tokens.wait(now, self._expected()))
        return max(waits)

    def _expected(self) -> float:
        if self._tokens is None:
            return 0.0
        # Nobody knows yet: as if each were all that may be taken at once.
        return sum(self._recent) / len(self._recent) if self._recent else self._tokens.burst

    # ---- from launch to launch

    def keep(self, context: RunContext) -> None:
        if self._rate is not None:
            context.rate_until = round(self._rate.used_until, 3)
        if self._tokens is not None:
            context.tokens_until = round(self._tokens.used_until, 3)

    def restore(self, context: RunContext, *, died_with: int) -> None:
        """`died_with` items were in flight when the last launch died."""
        now, attempts = self._clock(), died_with * self._attempts_each
        if self._rate is not None and (died_with or context.rate_until):
            self._rate.restore(context.rate_until, now, taken=attempts)
        if self._tokens is not None and (died_with or context.tokens_until):
            self._tokens.restore(context.tokens_until, now, taken=attempts * self._tokens.burst, is_corrected=True)

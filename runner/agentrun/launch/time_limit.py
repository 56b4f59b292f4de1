"""The limits of a launch in time: until when, and for how long, new items are started.

Both are measured on the wall clock, and looked at often: a laptop that sleeps, or a machine that is paused, has no
timer that counts meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from agentrun.errors import PlanError
from agentrun.job.job import Job
from agentrun.job.options import Options
from agentrun.launch.stopping import StopReason
from agentrun.values.units import format_duration
from agentrun.values.until import moment_words

LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When the launch stops starting items, in seconds since 1970, and why."""

    at: float
    by: Literal["until", "max_time"]
    reason: str
    note: str
    """For people who read the plan."""

    @property
    def stop_reason(self) -> StopReason:
        return StopReason(4, self.reason, by=self.by, has_grace=True)

    async def wait(
        self,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Return when that time has come."""
        while (left := self.at - clock()) > 0:
            await sleep(min(left, LOOK_SECONDS))


def time_limit_of(job: Job, options: Options, *, now: float) -> TimeLimit | None:
    """The earlier of the two limits of a launch that starts now; None if it has none. PlanError if it is over."""
    found = [limit for limit in (_until(job, options, now), _max_time(job, options, now)) if limit is not None]
    return min(found, key=lambda limit: limit.at, default=None)


def _until(job: Job, options: Options, now: float) -> TimeLimit | None:
    until = options.until if options.until is not None else job.until
    if until is None or until == "none":
        return None
    at = until.after(now)
    if at is None:
        what = "--until" if options.until is not None else "run.until"
        raise PlanError(
            f"{job.name}: {what} is {until.text}, which has passed; write a later time, or a time of day such as 07:00"
        )
    words = moment_words(at, now)
    return TimeLimit(at, "until", f"the time limit is reached: until {until.text}", f"no new items after {words}")


def _max_time(job: Job, options: Options, now: float) -> TimeLimit | None:
    seconds = options.max_time if options.max_time is not None else job.max_time_seconds
    if seconds is None or seconds == "none":
        return None
    words = moment_words(now + seconds, now)
    lasted = format_duration(seconds)
    return TimeLimit(
        now + seconds, "max_time", f"the time limit of {lasted} is reached", f"no new items after {words} ({lasted})"
    )

"""Waiting for a quota in place: whether a launch does, and until when.

A pause keeps the lock, and nothing is in flight. **It is no state of its own on disk: a launch that is killed in it
has a clean checkpoint behind it, whose `paused` says until when it wanted to wait.** It is measured on the wall clock,
and looked at every 30 s, because laptops sleep.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentrun.job.job import Job
from agentrun.job.options import Options
from agentrun.launch.stopping import StopReason
from agentrun.values.clock import seconds_until

LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """What bounds a pause, in seconds from now."""

    since_done: float
    """How long ago an item was done, or the launch began."""
    left: float | None = None
    """What is left of --until and --max-time."""


def pause_seconds(reason: StopReason | None, job: Job, options: Options, clocks: Clocks) -> float:
    """How long to wait before the launch continues; 0 if it ends with that reason."""
    if reason is None or not reason.passes_at or reason.exit_code != 75 or options.no_wait:
        return 0.0
    seconds = seconds_until(reason.passes_at)
    is_too_long = clocks.since_done + seconds > job.max_wait_seconds
    is_too_late = clocks.left is not None and seconds >= clocks.left
    return 0.0 if is_too_long or is_too_late else max(seconds, 1.0)


async def wait_until(time_text: str, woken: asyncio.Event) -> bool:
    """Wait for that time; False if something woke us before."""
    while (seconds := seconds_until(time_text)) > 0:
        try:
            await asyncio.wait_for(woken.wait(), min(seconds, LOOK_SECONDS))
            return False
        except TimeoutError:
            continue
    return not woken.is_set()

"""Waiting in place, for a quota or for a server that is down: whether a launch does, and until when.

In a pause nothing is in flight, and the lock is kept; for a quota, workers and served programs are closed. It begins
with a checkpoint that has `paused` and an empty `running`: a launch that is killed in it has stopped cleanly. It is
measured on the wall clock, and looked at every 30 s, because laptops sleep.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentrun.checkpoint.checkpoint import Paused
from agentrun.events import Pausing, Watcher
from agentrun.executors.port import Executor
from agentrun.job.options import Options
from agentrun.launch.committer import Checkpointing
from agentrun.launch.mail import Mail, Note
from agentrun.launch.slots import Slots
from agentrun.launch.stopping import StopReason
from agentrun.launch.time_limit import TimeLimit
from agentrun.runs.run import Run
from agentrun.values.clock import now_text, seconds_of, time_text

LOOK_SECONDS = 30.0
AGAIN_SECONDS, AGAIN_MOST_SECONDS = 60.0, 900.0
"""Where the time told has passed and yet nothing is accepted (clocks differ): a minute, and twice as long each time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds a pause; times are seconds since 1970."""

    max_wait_seconds: float
    since: float
    """When an item was last done, or the launch began."""
    limit: float | None = None
    """The time of --until or --max-time."""
    in_a_row: int = 0
    """How many pauses there were since then."""


def pause_until(reason: StopReason | None, bounds: Bounds, *, now: float) -> float | None:
    """When the launch continues, in seconds since 1970; None if it ends with that reason instead."""
    if reason is None or reason.exit_code != 75 or not (at := seconds_of(reason.passes_at)):
        return None
    if bounds.in_a_row and reason.resume_at:
        at = max(at, now + min(AGAIN_SECONDS * 2 ** (bounds.in_a_row - 1), AGAIN_MOST_SECONDS))
    if at - bounds.since > bounds.max_wait_seconds or (bounds.limit is not None and at >= bounds.limit):
        return None
    return at


class Pauses:
    """The pauses of one launch. `wake` ends the one that is under way."""

    def __init__(
        self,
        run: Run,
        options: Options,
        limit: TimeLimit | None,
        *,
        executor: Executor,
        slots: Slots,
        checkpointing: Checkpointing,
        mail: Mail,
        watcher: Watcher,
        note: Note,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._run = run
        self._options = options
        self._limit = limit.at if limit is not None else None
        self._executor = executor
        self._slots = slots
        self._checkpointing = checkpointing
        self._mail = mail
        self._watcher = watcher
        self._note = note
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._in_a_row = 0
        self._has_probed = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self) -> bool:
        """Wait for what has made the slots stop, if that passes in time; whether the launch continues."""
        slots, reason = self._slots, self._slots.stop_reason
        if reason is None or self._options.no_wait or self._woken.is_set():
            return False
        if slots.done_at > self._since:
            self._since, self._in_a_row, self._has_probed = slots.done_at, 0, False
        bounds = Bounds(self._run.job.max_wait_seconds, self._since, self._limit, self._in_a_row)
        until = pause_until(reason, bounds, now=self._clock())
        if until is None:
            return False
        is_probe = bool(reason.probe_at)
        self._in_a_row += not is_probe
        # What it waits for may have passed while the last items in flight finished.
        has_passed = not slots.has_outage if is_probe else until <= self._clock()
        words = reason.waits_for or reason.text
        paused = Paused(at=now_text(), until=time_text(until), reason=words, probes=is_probe)
        if not has_passed and not await self._pause(paused):
            return False
        if slots.stop_reason is not reason:
            return False
        slots.resume()
        return True

    async def _pause(self, paused: Paused) -> bool:
        """Whether its time has come; False if something woke us before."""
        checkpoint = self._run.checkpoint
        if not paused.probes:
            await self._executor.rest()
        checkpoint.paused = paused
        await self._checkpointing.commit()
        is_again = self._has_probed and paused.probes
        self._has_probed = paused.probes
        if not is_again:
            self._note("pause", reason=paused.reason, until=paused.until)
        self._watcher(Pausing(paused.reason, paused.until, paused.probes, is_again))
        await self._mail.during(self._time(seconds_of(paused.until)))
        checkpoint.paused = None
        if self._woken.is_set():
            return False
        if not paused.probes:
            self._note("continue")
        self._watcher(Pausing(paused.reason, "", paused.probes, is_again))
        return True

    async def _time(self, until: float) -> None:
        """Return at that time, or as soon as something wakes us."""
        while (seconds := until - self._clock()) > 0 and not self._woken.is_set():
            waits = {
                asyncio.ensure_future(self._sleep(min(seconds, LOOK_SECONDS))),
                asyncio.ensure_future(self._woken.wait()),
            }
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

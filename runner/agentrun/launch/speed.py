"""How fast a launch goes: the gate that exists from the first refusal on, and what becomes of refused items."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentrun.agents.failure import Failure, Judgement, asked_wait, is_overload
from agentrun.launch.throttle import SPAN_SECONDS, Gate, Throttle
from agentrun.runs.units import Ended
from agentrun.values.clock import now_seconds, time_text
from agentrun.values.units import format_duration

if TYPE_CHECKING:
    from agentrun.launch.slots import Slots
    from agentrun.runs.run import Run

SPEED_HOLDS_SECONDS = 600.0
REFUSED_MOST = 20
"""An item that was refused so often, while as many others were accepted, has failed."""
QUOTA_SECONDS = 15 * 60.0
"""If nothing is accepted for so long, while all is refused, that is a quota."""


@dataclass(slots=True)
class Refused:
    """An item that was refused: how often, and how many attempts had been accepted before."""

    accepted_before: int
    count: int = 0


class Speed:
    """`tell` is told how fast it goes when that changes. `slots` is set before the first attempt."""

    slots: Slots

    def __init__(
        self,
        run: Run,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._run = run
        self._clock = clock
        self._wall_clock = wall_clock
        self._tell = tell
        self._began, self._done_before = clock(), run.ledger.counts["done"]
        self.gate: Gate | None = None
        """Where attempts wait since something was refused."""
        self.refused: dict[int, Refused] = {}
        """By row, of items that are not settled yet."""

    @property
    def words(self) -> str:
        """How fast it goes at the moment, if a server has asked to slow down; empty if not."""
        return self.gate.throttle.words if self.gate is not None else ""

    def restore(self) -> None:
        """Begin at the speed that the last launch had found, if that was not long ago."""
        speed, job = self._run.context.speed, self._run.job
        if speed is not None and job.adapt and 0 <= self._wall_clock() - speed.at <= SPEED_HOLDS_SECONDS:
            throttle = Throttle(job.concurrency, self._clock())
            throttle.limit(pace=speed.pace, number=speed.number or None)
            self._set_gate(throttle)

    def refuse(self, row: int, ended: Ended, began: float, *, running: int) -> float | Ended:
        """An attempt was refused while `running` others run: how long its item waits, or how it ends instead."""
        assert ended.failure is not None
        gate = self.gate or self._open_gate(running)
        refused = self.refused.setdefault(row, Refused(gate.accepted))
        refused.count += 1
        # To try again at once is no time to wait for.
        asked = asked_wait(ended.failure) or None
        seconds = gate.refuse(began, asked=asked, is_overload=is_overload(ended.failure))
        if refused.count >= REFUSED_MOST and gate.accepted - refused.accepted_before >= REFUSED_MOST:
            ended.refused, ended.kind, ended.judgement = refused.count, "failed", Judgement("item")
            del self.refused[row]
            return ended
        if gate.seconds_refused >= QUOTA_SECONDS:
            return self._take_for_quota(ended.failure)
        # Without a time from the server, not all at the same moment.
        return seconds if asked is not None or not seconds else random.uniform(seconds, 2 * seconds)  # noqa: S311

    def leave(self, row: int, ended: Ended, began: float) -> None:
        """An attempt that was not refused has ended."""
        if self.gate is not None:
            self.gate.leave(began, accepted=ended.kind in ("done", "waiting", "skipped"))
            if row in self.refused:
                ended.refused = self.refused.pop(row).count

    def _take_for_quota(self, failure: Failure) -> Ended:
        waited = format_duration(QUOTA_SECONDS)
        resume_at = time_text(now_seconds() + QUOTA_SECONDS)
        quota = Failure(
            "exception",
            f"nothing was accepted for {waited}: {failure.message}",
            failure.types,
            status=failure.status,
            resume_at=resume_at,
        )
        return Ended("back", failure=quota, judgement=Judgement("everyone", passes_by_itself=True))

    def _set_gate(self, throttle: Throttle) -> Gate:
        gate = self.gate = Gate(throttle, self.slots, clock=self._clock, wall_clock=self._wall_clock, tell=self._tell)
        self._run.keepers.append(gate)
        return gate

    def _open_gate(self, running: int) -> Gate:
        """The first refusal. How many attempts began lately is known from what was done, on the average of the launch:
        before this nothing is counted."""
        now = self._clock()
        elapsed = max(now - self._began, 1e-3)
        span = min(SPAN_SECONDS, elapsed)
        done = round((self._run.ledger.counts["done"] - self._done_before) * span / elapsed)
        begun = [now - span * (number + 1) / (done + 1) for number in range(done)]
        # Some begin only when the checkpoint that is being written is on disk.
        in_flight = [one.began for one in self.slots.in_flight.values() if one.began]
        throttle = Throttle(self._run.job.concurrency, now, [*begun, *in_flight])
        throttle.in_flight = running + 1
        return self._set_gate(throttle)

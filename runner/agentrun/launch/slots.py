"""The slots: at most `concurrency` items in flight, and each slot continues only when its checkpoint is on disk."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from agentrun.agents.failure import asked_wait
from agentrun.agents.waits import whose_quota
from agentrun.checkpoint.ledger import PENDING
from agentrun.errors import AgentrunError
from agentrun.events import Asked, Failed, Settled, Stopping, Watcher, ignore
from agentrun.launch.attempts import Attempts
from agentrun.launch.committer import Checkpointing
from agentrun.launch.empties import EmptyOutputs
from agentrun.launch.pricing import how_to_price, how_to_report, needs_prices, no_price
from agentrun.launch.stopping import StopReason
from agentrun.money.usage import Reported, Usage
from agentrun.outputs.logs import ItemLogs
from agentrun.runs.run import Run
from agentrun.runs.units import Ended, Unit, Work
from agentrun.values.clock import now_seconds, seconds_of, time_text
from agentrun.values.units import format_duration
from agentrun.values.until import moment_words

FAILURES_BEFORE_FIRST_DONE = 3


def _no_more(rows: set[int]) -> Iterator[Work]:
    return iter(())


class Slots:
    """Takes items from a feed, has them attempted, and commits how they ended."""

    def __init__(
        self,
        run: Run,
        attempts: Attempts,
        checkpointing: Checkpointing,
        *,
        logs: ItemLogs,
        watcher: Watcher,
        limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._clock = clock
        self._logs = logs
        self._attempts = attempts
        self._checkpointing = checkpointing
        self._watcher = watcher
        self._watches = watcher is not ignore
        self._left = limit
        self._limit_is_reached = False
        self._feed: Iterator[Work] = iter(())
        self._feed_again: Callable[[set[int]], Iterator[Work]] = _no_more
        self._again: set[int] = set()
        self._again_at = 0.0
        self._found: deque[Work] = deque()
        self._later: deque[Work] = deque()
        """Items that went back because of a server that may be down: others come first until one is answered."""
        self._idle: list[int] = []
        self._starting: list[int] = []
        self._tasks: set[asyncio.Task[None]] | None = None
        self._attempting: dict[int, asyncio.Task[None]] = {}
        self._cancelled = False
        self._closed = False
        self._failures_in_a_row = 0
        self._any_done = False
        self._empties = EmptyOutputs(run.job, watcher)
        self._width = 0
        self._capacity: int | None = None
        """How many attempts the executor could take; None: as many as there are slots."""
        self.in_flight: dict[int, Work] = {}
        """By slot: what is running, or will be once the next checkpoint is on disk."""
        self.busy: set[int] = set()
        """Rows that are in flight, or about to be changed by a message."""
        self._next_of: dict[int, Work] = {}
        """By slot: what it runs once the checkpoint that is being written is on disk."""
        self.held_back = ""
        """Why no further item starts, although a slot is free."""
        self.stop_reason: StopReason | None = None
        self.done_at = 0.0
        """When an item was last done, in seconds since 1970."""

    # ---- taking items

    def open(self, feed: Iterator[Work], width: int, *, again: Callable[[set[int]], Iterator[Work]] = _no_more) -> None:
        """Take items from `feed` from now on, at most `width` at a time. The next checkpoint names the first of them.

        `again(rows)` gives those that became pending again meanwhile.
        """
        self._feed, self._feed_again = feed, again
        self._width = self._width or width
        # A slot may have taken an item already that was answered in between; it starts with the others.
        self._idle = [slot for slot in reversed(range(width)) if slot not in self.in_flight]
        self.held_back = ""

    def set_width(self, width: int) -> None:
        """At most so many items in flight from now on; those that are continue."""
        self._width = width

    def set_capacity(self, capacity: int) -> None:
        """The executor could take so many attempts from now on. More begin with the next checkpoint."""
        self._capacity = capacity

    @property
    def has_room(self) -> bool:
        """Whether an idle slot could take an item, if there is one."""
        is_open = self.stop_reason is None and not self._closed and self._tasks is not None
        return is_open and bool(self._idle) and len(self.in_flight) < self.width

    @property
    def width(self) -> int:
        """How many items may be in flight: one, while that one tries whether a server is back."""
        if self.has_outage:
            return 1
        return self._width if self._capacity is None else min(self._width, self._capacity)

    @property
    def has_outage(self) -> bool:
        return self._attempts.outages.is_down

    @property
    def surplus(self) -> int:
        """How many more are in flight than may be."""
        return len(self.in_flight) - self.width

    def advance(self, units: Sequence[Unit]) -> None:
        """While the checkpoint of these units is made: each slot that they free, and each idle one, takes its next
        item, which starts once that checkpoint is on disk."""
        # As the property `width`, which would be two calls more for every item.
        width = 1 if self._attempts.outages.is_down else self._width
        if self._capacity is not None and self._capacity < width:
            width = self._capacity
        for unit in units:
            if unit.slot is None:
                self._note_message(unit)
            elif len(self.in_flight) <= width and (work := self._next()) is not None:
                self.in_flight[unit.slot] = self._next_of[unit.slot] = work
            else:
                self.in_flight.pop(unit.slot, None)
        while self._idle and len(self.in_flight) < width and (work := self._next()) is not None:
            slot = self._idle.pop()
            self.in_flight[slot] = work
            self._starting.append(slot)

    def _note_message(self, unit: Unit) -> None:
        """An item that people changed is no longer busy, and the feed may have passed it already."""
        if unit.record.kind != "step" and not unit.is_counted:
            self.busy.discard(unit.row)
            if unit.record.kind in ("answer", "redo"):
                self._again.add(unit.row)

    def _next(self) -> Work | None:
        """The next item to run; None if there is none, or none may start now."""
        run, purse = self._run, self._run.purse
        if self.stop_reason is not None or self._limit_is_reached or self._closed:
            return None
        if run.job.carry and run.is_held_up:
            return None
        if self._attempts.unpriced is not None and needs_prices(run.job):
            self._stop_for_price(self._attempts.unpriced)
            return None
        if purse.limits and (why := purse.refusal()):
            self.held_back = why
            return None
        try:
            work = self._take() if self._again or self._found or self._later else next(self._feed, None)
        except AgentrunError as error:
            self.stop(StopReason(error.exit_code, str(error), error=error))
            return None
        self.held_back = ""
        if work is None:
            return None
        if self._left is not None:
            if self._left == 0:
                self._limit_is_reached = True
                # Of those that were taken, one may still go back.
                self._found.appendleft(work)
                return None
            self._left -= 1
        self.busy.add(work.row)
        if purse.limits:
            purse.begin(work.row)
        return work

    def _take(self) -> Work | None:
        """Items that became pending again come first, unless finding them would delay the others."""
        if self._again and time.monotonic() >= self._again_at:
            self._find_again()
        is_in_doubt = bool(self._attempts.outages.server) and not self._run.job.carry
        work = self._next_of_those(self._found)
        if work is None and not is_in_doubt:
            work = self._next_of_those(self._later)
        work = work or next(self._feed, None)
        if work is None and self._again:
            self._find_again()
            work = self._next_of_those(self._found)
        return work or self._next_of_those(self._later)

    def _next_of_those(self, waiting: deque[Work]) -> Work | None:
        while waiting:
            work = waiting.popleft()
            # The feed may have come by it in the meantime.
            is_to_run = self._run.ledger.states[work.row] == PENDING or work.row in self._run.to_retry
            # A suspect is run when all others are through.
            if is_to_run and work.row not in self.busy and work.row not in self._run.suspects:
                return work
        return None

    def _find_again(self) -> None:
        rows, self._again = self._again, set()
        began = time.monotonic()
        self._found += self._feed_again(rows)
        now = time.monotonic()
        # Finding them is a pass over the source: at most a twentieth of the time.
        self._again_at = now + 20 * (now - began)

    def claim(self, rows: Iterable[int]) -> None:
        """These rows are neither started nor changed by another message before their units are committed."""
        self.busy.update(rows)

    def unclaim(self, rows: Iterable[int]) -> None:
        """Nothing is committed for these rows after all."""
        self.busy.difference_update(rows)

    # ---- running them

    def start(self, units: Sequence[Unit] = ()) -> int:
        """A checkpoint with these units is on disk: what idle slots took for it starts. Returns how many were settled
        by slots."""
        settled = 0
        for unit in units:
            if unit.slot is not None:
                self.busy.discard(unit.row)
                settled += 1
        if self._starting and self._tasks is not None:
            for slot in self._starting:
                self._tasks.add(asyncio.create_task(self._work(slot, self.in_flight[slot])))
            self._starting.clear()
        return settled

    async def run(self) -> None:
        """Run until the feed is empty or no new items are started. An error of the store ends it at once."""
        self._tasks = set()
        self.start()
        errors: list[BaseException] = []
        try:
            while self._tasks:
                done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                self._tasks -= done
                errors += [error for task in done if (error := task.exception()) is not None]
                if errors:
                    # The store failed: nothing that ends from here on can be acknowledged.
                    self._closed = True
                    self.cancel()
                    # All of them, also their errors: those that nobody asks for would be printed at the end.
                    await asyncio.gather(*self._tasks, return_exceptions=True)
                    raise errors[0]
        finally:
            self._tasks = None
        # Not before: what was taken within the limit is run.
        if self._limit_is_reached:
            self.stop(StopReason(4, "--limit is reached", by="limit"))
        elif self.held_back and self._run.has_more:
            self._stop_for_budget(self.held_back)

    async def _work(self, slot: int, first: Work) -> None:
        """One slot, item after item."""
        work: Work | None = first
        purse, task = self._run.purse, asyncio.current_task()
        assert task is not None
        try:
            while work is not None and self.stop_reason is None:
                self._attempting[slot] = task
                work.began = self._clock()
                try:
                    ended = await self._attempts.settle(slot, work)
                except asyncio.CancelledError:
                    if not self._cancelled or not task.uncancel() == 0:
                        raise
                    ended = Ended("back")
                finally:
                    del self._attempting[slot]
                if ended.kind == "back":
                    self._note_back(work, ended)
                    break
                spent = purse.end(work.row) if purse.in_flight else None
                record = self._run.record(work, ended, spent)
                if spent is None and ended.kind == "done" and (purse.limits or self._run.item_budget):
                    self._stop_for_silence(work)
                await self._checkpointing.commit(Unit(work.row, slot, record))
                # On disk: from here on it may be started over, in another slot.
                settled, work = work, self._next_of.pop(slot, None)
                self._note_settled(settled, ended, spent)
                if ended.made_files:
                    await self._attempts.forget_files(settled, record.gen)
        finally:
            for left in (work, self._next_of.pop(slot, None)):
                if left is not None:
                    self._put_back(left)
            self.in_flight.pop(slot, None)
            self._idle.append(slot)
        is_alone = not self.in_flight and not self._limit_is_reached
        if self.stop_reason is None and (self._later or (self._found and is_alone)):
            # Nothing else may be in flight whose checkpoint would let another item begin.
            await self._checkpointing.commit()

    def _put_back(self, work: Work) -> None:
        """The item was taken, and is not settled: this launch may take it again."""
        self.busy.discard(work.row)
        self._run.put_back(work)
        (self._later if self._attempts.outages.server else self._found).append(work)
        if self._left is not None:
            self._left, self._limit_is_reached = self._left + 1, False

    def _note_back(self, work: Work, ended: Ended) -> None:
        """What follows from an item that goes back."""
        self._attempts.keep_number(work)
        if ended.budget_reached:
            self._stop_for_budget(ended.budget_reached)
        if ended.failure is None or ended.judgement is None:
            return
        later, wait, now = ended.judgement.passes_by_itself, asked_wait(ended.failure), now_seconds()
        at = ended.failure.resume_at or (time_text(now + wait) if wait is not None else "")
        when = f"in {format_duration(wait)}" if wait is not None else "later"
        if ended.failure.resume_at:
            when = f"after {moment_words(seconds_of(at), now) if seconds_of(at) else at}"
        hint = f"this is temporary; resume {when}" if later else "fix that, then resume"
        reason = StopReason(75 if later else 4, f"{ended.failure.cause} ({work.item.key})", hint)
        self.stop(replace(reason, resume_at=at, waits_for=whose_quota(ended.failure)) if later else reason)

    def _note_settled(self, work: Work, ended: Ended, spent: Usage | None) -> None:
        """What follows from an item that is settled, or waits, and is on disk."""
        if self._watches:
            self._report(work, ended, spent)
        if ended.kind != "failed":
            self._failures_in_a_row = 0
            if ended.kind == "done":
                self._any_done, self.done_at = True, time.time()
                self._empties.note(work.item.key, is_empty=ended.is_empty)
                self._logs.settle(work.item.key)
            return
        assert ended.failure is not None
        self._failures_in_a_row += 1
        most = self._run.job.stop_after_failures
        if most and not self._any_done:
            most = min(most, FAILURES_BEFORE_FIRST_DONE)
        if most and self._failures_in_a_row >= most:
            count = self._failures_in_a_row
            text = f"{count} items failed in a row, the last with {ended.failure.cause}"
            if count == 1:
                text = f"an item failed with {ended.failure.cause}"
            hint = "fix that, then resume; --stop-after-failures 0 continues regardless"
            self.stop(StopReason(4, text, hint, by="failures"))

    def _report(self, work: Work, ended: Ended, spent: Usage | None) -> None:
        key = work.item.key
        if ended.question is not None:
            self._watcher(Asked(key, ended.question.text))
        elif ended.kind in ("done", "failed", "skipped"):
            self._watcher(Settled(key, ended.kind, spent.cost if spent is not None else None))
        if ended.kind == "failed" and ended.failure is not None:
            self._watcher(Failed(key, ended.failure.cause))

    # ---- stopping

    def _stop_for_budget(self, why: str) -> None:
        self.stop(StopReason(4, why, "raise it to continue", flags=self._run.purse.raised(), by="budget"))

    def _stop_for_silence(self, work: Work) -> None:
        """Without knowing what the items use, a budget means nothing."""
        text = f'a budget is set, but "{work.item.key}" finished without reporting its usage'
        self.stop(StopReason(4, text, how_to_report(self._run.job)))

    def _stop_for_price(self, reported: Reported) -> None:
        """Without knowing what they cost, neither."""
        self.stop(StopReason(4, no_price(reported), how_to_price(self._run.job, reported)))

    def stop(self, reason: StopReason) -> None:
        """No new items, and no retries. Attempts in flight continue; see `cancel`.

        Of several reasons the gravest counts, else the first.
        """
        self._attempts.stop()
        before = self.stop_reason
        if before is None or reason.gravity > before.gravity:
            # A signal that ends a pause does not bring its time forward.
            if before is not None and before.resume_at and not reason.resume_at:
                reason = replace(reason, resume_at=before.resume_at, waits_for=before.waits_for)
            self.stop_reason = reason
            grace = 0.0 if reason.is_at_once else self._run.job.grace_seconds if reason.has_grace else None
            if not reason.probe_at:
                self._watcher(Stopping(reason.text, len(self._attempting), grace))

    def resume(self) -> None:
        """New items are started again, after a stop at whose end nothing was in flight."""
        self.stop_reason, self._cancelled = None, False
        self._attempts.resume()

    def close(self) -> None:
        """Nothing is in flight any more, and nothing will be."""
        self._closed = True
        self.in_flight.clear()

    def cancel(self) -> None:
        """End the attempts in flight; their items go back to pending."""
        self._cancelled = True
        for task in self._attempting.values():
            # Once: a task that was cancelled twice, by a signal and the end of the grace period, does not come back.
            if not task.cancelling():
                task.cancel()

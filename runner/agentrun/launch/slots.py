"""The slots: at most `concurrency` items in flight, each slot going on only when its checkpoint is on disk."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentrun.agents.failure import asked_wait
from agentrun.checkpoint.ledger import PENDING
from agentrun.errors import AgentrunError
from agentrun.events import Failed, Stopping, Watcher
from agentrun.launch.attempts import Attempts
from agentrun.launch.committer import Committer
from agentrun.runs.run import Run
from agentrun.runs.units import Ended, Unit, Work
from agentrun.values.units import format_duration

FAILURES_BEFORE_FIRST_DONE = 3


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why no new items are begun. `exit_code` is the launch's, unless all is settled anyway."""

    exit_code: int
    text: str
    hint: str = ""
    error: AgentrunError | None = None
    """What the source raised, where that is the reason."""
    flags: str = ""
    """What the command that goes on needs."""


class Slots:
    """Takes items from a feed, has them attempted, and commits how they ended."""

    def __init__(
        self,
        run: Run,
        attempts: Attempts,
        committer: Committer,
        *,
        watcher: Watcher,
        limit: int | None = None,
    ) -> None:
        self._run = run
        self._attempts = attempts
        self._committer = committer
        self._watcher = watcher
        self._left = limit
        self._limit_is_reached = False
        self._feed: Iterator[Work] = iter(())
        self._feed_again: Callable[[set[int]], Iterator[Work]] = lambda rows: iter(())
        self._again: set[int] = set()
        self._again_at = 0.0
        self._found: deque[Work] = deque()
        self._idle: list[int] = []
        self._starting: list[int] = []
        self._tasks: set[asyncio.Task[None]] | None = None
        self._attempting: dict[int, asyncio.Task[None]] = {}
        self._cancelled = False
        self._closed = False
        self._failures_in_a_row = 0
        self._any_done = False
        self.in_flight: dict[int, Work] = {}
        """By slot: what is running, or will be once the next checkpoint is on disk."""
        self.rows_in_flight: set[int] = set()
        self._next_of: dict[int, Work | None] = {}
        self._held_back = ""
        self.stop_reason: StopReason | None = None

    # ---- taking items

    def open(
        self,
        feed: Iterator[Work],
        width: int,
        *,
        again: Callable[[set[int]], Iterator[Work]] = lambda rows: iter(()),
    ) -> None:
        """Take items from `feed` from now on, at most `width` at a time. The next checkpoint names the first of them.

        `again(rows)` gives those that became pending anew meanwhile.
        """
        self._feed, self._feed_again = feed, again
        # One may have taken an item already that was answered in between; it starts with the others.
        self._idle = [slot for slot in reversed(range(width)) if slot not in self.in_flight]
        self._held_back = ""

    def offer(self, row: int) -> None:
        """This item is pending again, and the feed may have passed it."""
        self._again.add(row)

    def _next(self) -> Work | None:
        if self.stop_reason is not None or self._limit_is_reached or self._closed:
            return None
        purse = self._run.purse
        if self._attempts.unpriced and purse.budget is not None:
            self._stop_for_price(self._attempts.unpriced)
            return None
        if purse.limits and (why := purse.refusal()):
            self._held_back = why
            return None
        try:
            work = self._take()
        except AgentrunError as error:
            self.stop(StopReason(error.exit_code, str(error), error=error))
            return None
        self._held_back = ""
        if work is None:
            return None
        if self._left is not None:
            if self._left == 0:
                self._limit_is_reached = True
                return None
            self._left -= 1
        self.rows_in_flight.add(work.row)
        if purse.limits:
            purse.begin(work.row)
        return work

    def _take(self) -> Work | None:
        """Those that became pending anew come first, unless finding them would hold up the others."""
        if self._again and time.monotonic() >= self._again_at:
            self._find_again()
        work = self._next_found() or next(self._feed, None)
        if work is None and self._again:
            self._find_again()
            work = self._next_found()
        return work

    def _next_found(self) -> Work | None:
        while self._found:
            work = self._found.popleft()
            # The feed may have come by it in the meantime.
            if self._run.ledger.states[work.row] == PENDING and work.row not in self.rows_in_flight:
                return work
        return None

    def _find_again(self) -> None:
        rows, self._again = self._again, set()
        began = time.monotonic()
        self._found += self._feed_again(rows)
        now = time.monotonic()
        # It is a pass over the source: at most a twentieth of the time.
        self._again_at = now + 20 * (now - began)

    def go_on(self, slot: int) -> None:
        """The slot's unit goes into the checkpoint that is being made: what follows it counts as in flight."""
        following = self._next_of.pop(slot, None)
        if following is not None:
            self.in_flight[slot] = following
        else:
            self.in_flight.pop(slot, None)

    def top_up(self) -> None:
        """For the checkpoint that is being made: idle slots take what there is, and start once it is on disk."""
        while self._idle and (work := self._next()) is not None:
            slot = self._idle.pop()
            self.in_flight[slot] = work
            self._starting.append(slot)

    def start(self) -> None:
        """What `top_up` took is in a checkpoint on disk."""
        if self._tasks is None:
            return
        for slot in self._starting:
            task = asyncio.create_task(self._slot(slot, self.in_flight[slot]))
            self._tasks.add(task)
        self._starting.clear()

    # ---- running them

    async def run(self) -> None:
        """Run until the feed is empty or no new items are begun. An error of the store ends it at once."""
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
            self.stop(StopReason(4, "--limit is reached"))
        elif self._held_back and self._run.has_more:
            self._stop_for_budget(self._held_back)

    async def _slot(self, slot: int, first: Work) -> None:
        run = self._run
        task = asyncio.current_task()
        assert task is not None
        work: Work | None = None
        following: Work | None = first
        try:
            while following is not None and self.stop_reason is None:
                work, following = following, None
                generation = run.ledger.generation(work.row)
                self._attempting[slot] = task
                try:
                    ended = await self._attempts.settle(slot, work, generation=generation, carry=run.carry)
                except asyncio.CancelledError:
                    if not self._cancelled or not task.uncancel() == 0:
                        raise
                    ended = Ended("back")
                finally:
                    del self._attempting[slot]
                if ended.kind == "back":
                    self._put_back(work, ended)
                    break
                record = run.record(work, ended)
                self._account(work, ended)
                # With a carry nothing goes past an item that waits.
                is_held_up = run.job.carry and ended.kind == "waiting"
                self._next_of[slot] = following = None if is_held_up else self._next()
                await self._committer.commit(Unit(work.row, slot, record))
                settled, work = work, None
                self._note(settled, ended)
                if ended.made_files:
                    await self._attempts.forget_files(settled, generation)
        finally:
            # Not of one that is settled: it may have been begun anew since, in another slot.
            for left in (work, following):
                if left is not None:
                    self.rows_in_flight.discard(left.row)
                    run.purse.end(left.row)
            self.in_flight.pop(slot, None)
            self._idle.append(slot)

    def _account(self, work: Work, ended: Ended) -> None:
        """What the item used is known now, or the budget is none."""
        purse = self._run.purse
        spent = purse.end(work.row)
        if purse.limits and ended.kind == "done" and not spent:
            text = f'there is a budget, and "{work.item.key}" has ended without a word of what it used'
            hint = "add ctx.usage(response) to the agent, or ctx.usage(cost=0) if it is free"
            self.stop(StopReason(4, text, hint))

    def _put_back(self, work: Work, ended: Ended) -> None:
        if ended.spent_up:
            self._stop_for_budget(ended.spent_up)
        if ended.failure is None or ended.judgement is None:
            return
        later = ended.judgement.passes_by_itself
        wait = asked_wait(ended.failure)
        when = ended.failure.resume_at or (f"in {format_duration(wait)}" if wait is not None else "later")
        hint = f"it passes by itself; go on {when}" if later else "mend that, then go on"
        self.stop(StopReason(75 if later else 4, f"{ended.failure.cause} ({work.item.key})", hint))

    def _note(self, work: Work, ended: Ended) -> None:
        """What follows from an item that is settled and on disk."""
        if ended.kind != "failed":
            self._any_done |= ended.kind == "done"
            self._failures_in_a_row = 0
            return
        assert ended.failure is not None
        self._watcher(Failed(work.item.key, ended.failure.cause))
        self._failures_in_a_row += 1
        most = self._run.job.stop_after_failures
        if most and not self._any_done:
            most = min(most, FAILURES_BEFORE_FIRST_DONE)
        if most and self._failures_in_a_row >= most:
            text = f"{self._failures_in_a_row} items failed in a row, the last with {ended.failure.cause}"
            self.stop(StopReason(4, text, "mend that, then go on; --stop-after-failures 0 goes on regardless"))

    # ---- stopping

    def _stop_for_budget(self, why: str) -> None:
        job = self._run.job
        higher = f"--budget {2 * job.budget:g}" if job.budget else f"--token-budget {2 * (job.token_budget or 0)}"
        self.stop(StopReason(4, why, "a higher one goes on", flags=higher))

    def _stop_for_price(self, why: str) -> None:
        if not self._run.job.prompt:
            self.stop(StopReason(4, why, "then go on"))
            return
        # A prompt has no line to add.
        hint = "limit the run by token_budget in place of budget, then go on"
        self.stop(StopReason(4, why.partition(";")[0], hint))

    def stop(self, reason: StopReason) -> None:
        """No new items, and no retries. Attempts under way go on; see `cancel`.

        Of several reasons the gravest counts, else the first.
        """
        self._attempts.stop()
        before = self.stop_reason
        if before is None or _gravity(reason) > _gravity(before):
            self.stop_reason = reason
        if before is None:
            self._watcher(Stopping(reason.text, len(self._attempting)))

    def close(self) -> None:
        """Nothing is in flight any more, and nothing will be."""
        self._closed = True
        self.in_flight.clear()

    def cancel(self) -> None:
        """End the attempts that are under way; their items go back to pending."""
        self._cancelled = True
        for task in self._attempting.values():
            # Once: a task that was cancelled twice, by a signal and the end of the grace period, does not come back.
            if not task.cancelling():
                task.cancel()


def _gravity(reason: StopReason) -> int:
    """As in the table of exits: signals, then 75, then 4."""
    return 2 if reason.exit_code > 128 else 1 if reason.exit_code == 75 else 0

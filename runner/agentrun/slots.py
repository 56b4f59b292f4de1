"""The slots: at most `concurrency` items in flight, each slot going on only when its checkpoint is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from agentrun.attempts import Attempts, Ended
from agentrun.committer import Committer, Unit
from agentrun.errors import AgentrunError
from agentrun.events import Failed, Stopping, Watcher
from agentrun.failure import asked_wait
from agentrun.feed import Work
from agentrun.standing import Run
from agentrun.values import format_duration

FAILURES_BEFORE_FIRST_DONE = 3


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why no new items are begun. `exit_code` is the launch's, unless all is settled anyway."""

    exit_code: int
    text: str
    hint: str = ""
    error: AgentrunError | None = None
    """What the source raised, where that is the reason."""


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
        self._attempting: dict[int, asyncio.Task[None]] = {}
        self._cancelled = False
        self._failures_in_a_row = 0
        self._any_done = False
        self.in_flight: dict[int, Work] = {}
        """By slot: what is running, or will be once the next checkpoint is on disk."""
        self.rows_in_flight: set[int] = set()
        self._next_of: dict[int, Work | None] = {}
        self.stop_reason: StopReason | None = None

    # ---- taking items

    def open(self, feed: Iterator[Work], width: int) -> None:
        """Take the first items of a feed, so that the checkpoint before they start can name them."""
        self._feed = feed
        for slot in range(width):
            work = self._next()
            if work is None:
                break
            self.in_flight[slot] = work

    def _next(self) -> Work | None:
        if self.stop_reason is not None or self._limit_is_reached:
            return None
        try:
            work = next(self._feed, None)
        except AgentrunError as error:
            self.stop(StopReason(error.exit_code, str(error), error=error))
            return None
        if work is None:
            return None
        if self._left is not None:
            if self._left == 0:
                self._limit_is_reached = True
                return None
            self._left -= 1
        self.rows_in_flight.add(work.row)
        return work

    def go_on(self, slot: int) -> None:
        """The slot's unit goes into the checkpoint that is being made: what follows it counts as in flight."""
        following = self._next_of.pop(slot, None)
        if following is not None:
            self.in_flight[slot] = following
        else:
            self.in_flight.pop(slot, None)

    # ---- running them

    async def run(self) -> None:
        """Run until the feed is empty or no new items are begun. An error of the store ends it at once."""
        tasks = [asyncio.create_task(self._slot(slot, work)) for slot, work in self.in_flight.items()]
        pending: set[asyncio.Task[None]] = set()
        if tasks:
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            # The store failed: nothing that ends from here on can be acknowledged.
            self.cancel()
            await asyncio.wait(pending)
        errors = [error for task in tasks if (error := task.exception()) is not None]
        if errors:
            raise errors[0]
        # Not before: what was taken within the limit is run.
        if self._limit_is_reached:
            self.stop(StopReason(4, "--limit is reached"))

    async def _slot(self, slot: int, first: Work) -> None:
        work: Work | None = first
        while work is not None and self.stop_reason is None:
            ended = await self._attempt(slot, work)
            if ended.kind == "back":
                self._put_back(work, ended)
                break
            self._next_of[slot] = following = self._next()
            unit = Unit(work.row, slot, self._run.record(work, ended))
            await self._committer.commit(unit)
            self._note(work, ended)
            work = following
        self.in_flight.pop(slot, None)
        if work is not None:
            self.rows_in_flight.discard(work.row)

    async def _attempt(self, slot: int, work: Work) -> Ended:
        task = asyncio.current_task()
        assert task is not None
        self._attempting[slot] = task
        try:
            return await self._attempts.settle(
                slot, work, generation=self._run.ledger.generation(work.row), carry=self._run.carry
            )
        except asyncio.CancelledError:
            if not self._cancelled or not task.uncancel() == 0:
                raise
            return Ended("back")
        finally:
            del self._attempting[slot]

    def _put_back(self, work: Work, ended: Ended) -> None:
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

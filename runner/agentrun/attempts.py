"""From an item to its end: attempts, and which of their failures are tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from agentrun.events import Retrying, Watcher
from agentrun.executors.port import Attempt, Executor, Outcome
from agentrun.failure import Failure, Judgement, asked_wait, judge
from agentrun.feed import Work
from agentrun.itemlogs import ItemLogs
from agentrun.job import Job
from agentrun.pace import Pace

BACKOFF_SECONDS, BACKOFF_MOST_SECONDS = 1.0, 60.0


@dataclass(slots=True)
class Ended:
    """How an item ended in this launch; `back` puts it back to pending."""

    kind: Literal["done", "failed", "skipped", "waiting", "back"]
    output: bytes | None = None
    failure: Failure | None = None
    judgement: Judgement | None = None
    tries: list[dict[str, Any]] = field(default_factory=list)
    carry: Any = None
    carry_set: bool = False


class _Again(Exception):
    """An attempt that is to be tried again, for tenacity."""

    def __init__(self, ended: Ended) -> None:
        super().__init__()
        self.ended = ended


class _Stopping(Exception):
    """The launch stops while an item waits for its next attempt."""


class Attempts:
    """Runs the attempts of items. The first goes without tenacity; what follows a failure goes by it."""

    def __init__(
        self,
        executor: Executor,
        job: Job,
        *,
        run_id: str,
        launch: int,
        logs: ItemLogs,
        watcher: Watcher,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._executor = executor
        self._job = job
        self._run_id = run_id
        self._launch = launch
        self._logs = logs
        self._watcher = watcher
        self._sleep = sleep
        self._stopping = asyncio.Event()
        self._pace = Pace(job.rate.per_seconds / job.rate.count, sleep=sleep) if job.rate else None

    def stop(self) -> None:
        """Nothing is tried again from here on: what fails, and would be, goes back. Attempts under way go on."""
        self._stopping.set()

    async def settle(self, slot: int, work: Work, *, generation: int, carry: Any) -> Ended:
        """Attempt the item until it is settled, or is to go back. Cancelling ends the attempt under way."""
        first = await self._try(slot, work, generation, carry, 1, [])
        if not self._is_tried_again(first):
            return first
        return await self._retry(first, slot, work, generation, carry)

    async def _retry(self, first: Ended, slot: int, work: Work, generation: int, carry: Any) -> Ended:
        from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

        backoff = wait_random_exponential(multiplier=BACKOFF_SECONDS, max=BACKOFF_MOST_SECONDS)
        last = first

        async def again(number: int) -> Ended:
            nonlocal last
            if number > 1:
                last = await self._try(slot, work, generation, carry, number, last.tries)
            if self._is_tried_again(last):
                raise _Again(last)
            return last

        def wait(state: RetryCallState) -> float:
            assert last.failure is not None
            asked = asked_wait(last.failure) or 0.0
            # At least half of the backoff's bound, so that a retry is never at once.
            least = min(BACKOFF_SECONDS * 2 ** (state.attempt_number - 1), BACKOFF_MOST_SECONDS) / 2
            seconds = float(max(asked, least, backoff(state)))
            self._watcher(Retrying(work.item.key, last.failure.cause, state.attempt_number, seconds))
            return seconds

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Again),
            wait=wait,
            # What is to stop is not raised as _Again in the first place; this bounds it all the same.
            stop=lambda state: state.attempt_number > self._job.retries,
            sleep=self._pause,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    return await again(attempt.retry_state.attempt_number)
        except _Again:
            pass
        except _Stopping:
            return Ended("back")
        return last

    async def _pause(self, seconds: float) -> None:
        waits = {asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._stopping.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stopping.is_set():
            raise _Stopping

    def _is_tried_again(self, ended: Ended) -> bool:
        if ended.kind != "failed" or ended.judgement is None or ended.judgement.verdict != "transient":
            return False
        if len(ended.tries) > self._job.retries:
            return False
        # A timeout, or a worker that died, is retried once, however many other attempts there were.
        most = ended.judgement.most_attempts
        alike = sum(1 for one in ended.tries if one.get("bounded"))
        return most is None or alike < most

    async def _try(
        self, slot: int, work: Work, generation: int, carry: Any, number: int, before: list[dict[str, Any]]
    ) -> Ended:
        job = self._job
        if self._pace is not None:
            await self._pace.wait()
        ended = Ended("back")
        attempt = Attempt(
            item=work.item,
            generation=generation,
            launch=self._launch,
            number=number,
            run_id=self._run_id,
            params=job.params,
            carry=carry,
            timeout_seconds=job.timeout_seconds,
            log_path=self._logs.slot_path(slot),
        )

        async def channel(message: dict[str, Any]) -> dict[str, Any]:
            kind = message.get("type")
            if kind == "log":
                self._logs.append(slot, str(message.get("text", "")))
            elif kind == "carry":
                ended.carry, ended.carry_set = message.get("value"), True
            elif kind != "progress":
                return {"error": f"this runner does not know messages of type {kind!r}"}
            return {}

        at, began = time.time(), time.monotonic()
        outcome = await self._executor.run(attempt, channel)
        tried: dict[str, Any] = {
            "launch": self._launch,
            "number": number,
            "at": round(at, 3),
            "seconds": round(time.monotonic() - began, 4),
        }
        self._take(outcome, ended)
        if ended.kind not in ("done", "back"):
            self._describe(slot, work, ended, tried)
        ended.tries = [*before, tried]
        return ended

    def _take(self, outcome: Outcome, ended: Ended) -> None:
        ended.failure = outcome.failure
        if outcome.kind == "done":
            ended.kind, ended.output = "done", outcome.output
        elif outcome.kind == "cancelled":
            ended.kind = "back"
        elif outcome.kind in ("skipped", "waiting"):
            ended.kind = "skipped" if outcome.kind == "skipped" else "waiting"
        else:
            failure = outcome.failure or Failure("lost", "the attempt ended without a word")
            ended.failure, ended.judgement = failure, judge(failure)
            verdict = ended.judgement.verdict
            ended.kind = "back" if verdict == "everyone" else "skipped" if verdict == "skip" else "failed"

    def _describe(self, slot: int, work: Work, ended: Ended, tried: dict[str, Any]) -> None:
        if ended.failure is not None:
            tried["cause"] = ended.failure.cause[:500]
        if ended.judgement is not None and ended.judgement.most_attempts is not None:
            tried["bounded"] = True
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(tried["at"]))
        heading = f"launch {tried['launch']}, attempt {tried['number']}, {stamp}: {tried.get('cause', ended.kind)}"
        self._logs.keep(slot, work.item.key, heading)

"""From an item to its end: attempts, and which of their failures are tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.failure import Failure, asked_wait, judge
from agentrun.checkpoint.remembered import Remembered
from agentrun.events import Retrying, Watcher
from agentrun.executors.port import Executor
from agentrun.job.job import Job
from agentrun.launch.channel import RunnerEnd
from agentrun.launch.progress import ProgressReports
from agentrun.outputs.files import ItemFiles, ItemFilesError
from agentrun.outputs.logs import ItemLogs
from agentrun.runs.units import Ended, Unit, Work
from agentrun.store.port import Entry
from agentrun.values.clock import now_seconds

if TYPE_CHECKING:
    from agentrun.runs.run import Run


BACKOFF_SECONDS, BACKOFF_MOST_SECONDS = 1.0, 60.0


class _Again(Exception):
    """An attempt that is to be tried again, for tenacity."""

    def __init__(self, ended: Ended) -> None:
        super().__init__()
        self.ended = ended


class _Stopping(Exception):
    """The launch stops while an item waits for its next attempt, or the budget has no room for that."""


class Attempts:
    """Runs the attempts of items. The first goes without tenacity; what follows a failure goes by it.

    `commit` returns when a step is on disk, `recall` gives the records of the steps at some refs.
    """

    def __init__(
        self,
        executor: Executor,
        job: Job,
        *,
        run: Run,
        launch: int,
        commit: Callable[[Unit], Awaitable[None]],
        recall: Callable[[Sequence[int]], Awaitable[Sequence[Mapping[str, Any]]]],
        logs: ItemLogs,
        files: ItemFiles,
        watcher: Watcher,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._executor = executor
        self._job = job
        self.run = run
        self._launch = launch
        self._commit = commit
        self._recall = recall
        self._logs = logs
        self._files = files
        self._folder = files.root
        self._watcher = watcher
        self._progress = ProgressReports(watcher)
        self._sleep = sleep
        self.unpriced = ""
        """Why a usage that was reported cannot count towards the budget."""
        self._stopping = asyncio.Event()
        self._pace = Pace(job.rate.per_seconds / job.rate.count, sleep=sleep) if job.rate else None

    def stop(self) -> None:
        """Nothing is tried again from here on: what fails, and would be, goes back. Attempts under way go on."""
        self._stopping.set()

    def settle(self, slot: int, work: Work, *, generation: int, carry: Any) -> Coroutine[Any, Any, Ended]:
        """Attempt the item until it is settled, or is to go back. Cancelling ends the attempt under way."""
        usages = self.run.ledger.usages
        if usages and (before := usages.get(work.row)):
            self.run.purse.begin(work.row, before)
        return self._try(slot, work, generation, carry, 1, [])

    async def forget_files(self, work: Work, generation: int) -> None:
        """The item is done, and that is on disk: its scratch is no longer needed."""
        await asyncio.to_thread(self._files.forget, work.item.key, generation)

    async def _retry(
        self, first: Ended, work: Work, attempt: Callable[[int, list[dict[str, Any]]], Awaitable[Ended]]
    ) -> Ended:
        from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

        backoff = wait_random_exponential(multiplier=BACKOFF_SECONDS, max=BACKOFF_MOST_SECONDS)
        last = first

        async def again(number: int) -> Ended:
            nonlocal last
            if number > 1:
                if why := self.run.purse.refusal(again=work.row):
                    raise _Stopping(why)
                last = await attempt(number, last.tries)
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
            async for state in retrying:
                with state:
                    return await again(state.retry_state.attempt_number)
        except _Again:
            pass
        except _Stopping as stopping:
            return Ended("back", spent_up=str(stopping))
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
        self,
        slot: int,
        work: Work,
        generation: int,
        carry: Any,
        number: int,
        before: list[dict[str, Any]],
    ) -> Ended:
        """One attempt, and after the first all that follow it."""
        job, remembered, steps = self._job, None, self.run.ledger.steps
        if steps and (refs := steps.get(work.row)):
            remembered = Remembered.of(await self._recall(refs))
        if self._pace is not None:
            await self._pace.wait()
        attempt = Attempt(
            item=work.item,
            generation=generation,
            launch=self._launch,
            number=number,
            run_id=self.run.run_id,
            params=job.params,
            carry=carry,
            timeout_seconds=job.timeout_seconds,
            log_path=self._logs.slot_path(slot),
            folder=self._folder,
        )
        end = RunnerEnd(self, slot, work, remembered)
        at, began = now_seconds(), time.monotonic()
        try:
            outcome = await self._executor.run(attempt, end.answer)
        finally:
            end.close()
            self._progress.end(work.item.key)
        tried: dict[str, Any] = {
            "launch": self._launch,
            "number": number,
            "at": at,
            # To the tenth of a millisecond; round() takes longer than all else here.
            "seconds": int((time.monotonic() - began) * 10_000) / 10_000,
        }
        if end.usage:
            tried["usage"] = end.usage
        before = [*before, tried] if before else [tried]
        ended = Ended("back", tries=before, carry=end.carry, carry_set=end.carry_set)
        self._take(outcome, ended, end)
        if ended.kind == "done" and outcome.made_files:
            await self._publish(work, Path(attempt.work), ended)
        if ended.kind not in ("done", "back"):
            self._describe(slot, work.item.key, ended, tried)
        if number == 1 and self._is_tried_again(ended):
            return await self._retry(ended, work, partial(self._try, slot, work, generation, carry))
        return ended

    # ---- for its runner ends

    async def commit_step(self, work: Work, record: Entry) -> None:
        await self._commit(Unit(work.row, None, record))

    def log(self, slot: int, text: str) -> None:
        self._logs.append(slot, text)

    def report_progress(self, key: str, text: str) -> None:
        self._progress.report(key, text)

    def miss_price(self, why: str) -> None:
        self.unpriced = self.unpriced or why

    # ---- how an attempt ended

    def _take(self, outcome: Outcome, ended: Ended, end: RunnerEnd) -> None:
        ended.failure = outcome.failure
        if outcome.kind == "cancelled":
            ended.kind = "back"
        elif end.question is not None:
            # Also where the agent went on regardless: what it made without the answer does not count.
            ended.kind, ended.failure = "waiting", None
            ended.details["question"] = end.question
        elif outcome.kind == "done":
            ended.kind, ended.output = "done", outcome.output
        elif outcome.kind == "skipped":
            ended.kind = "skipped"
        else:
            failure = outcome.failure or Failure("lost", "the attempt ended without a word")
            ended.failure, ended.judgement = failure, judge(failure)
            verdict = ended.judgement.verdict
            ended.kind = "back" if verdict == "everyone" else "skipped" if verdict == "skip" else "failed"
            if failure.origin in ("timeout", "lost") and not end.usage:
                self.run.purse.charge_unknown(end.work.row)
        if end.warning:
            ended.details["warning"] = end.warning

    async def _publish(self, work: Work, folder: Path, ended: Ended) -> None:
        """What the attempt left in `out` is in its place, and on disk, before the checkpoint that names it."""
        ended.made_files = True
        try:
            files = await asyncio.to_thread(self._files.publish, folder, self.run.output, work.item.key)
        except ItemFilesError as error:
            failure = Failure("output", str(error))
            ended.kind, ended.output, ended.failure, ended.judgement = "failed", None, failure, judge(failure)
            return
        if files:
            ended.details["files"] = files

    def _describe(self, slot: int, key: str, ended: Ended, tried: dict[str, Any]) -> None:
        if ended.failure is not None:
            tried["cause"] = ended.failure.cause[:500]
        if ended.judgement is not None and ended.judgement.most_attempts is not None:
            tried["bounded"] = True
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(tried["at"]))
        heading = f"launch {tried['launch']}, attempt {tried['number']}, {stamp}: {tried.get('cause', ended.kind)}"
        self._logs.keep(slot, key, heading)


class Pace:
    def __init__(self, seconds_between: float, *, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._seconds_between = seconds_between
        self._sleep = sleep
        self._next = 0.0

    async def wait(self) -> None:
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._seconds_between
        if at > now:
            await self._sleep(at - now)

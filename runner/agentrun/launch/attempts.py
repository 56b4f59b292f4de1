"""From an item to its end: attempts, and which of their failures are retried."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from os.path import exists, getsize
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.failure import EMPTY, ENGINE_LOST, HOST_LOST, Failure, asked_wait, is_overload, is_refusal, judge
from agentrun.checkpoint.record import Record, Try
from agentrun.checkpoint.remembered import Remembered
from agentrun.errors import AgentrunError
from agentrun.events import Retrying, Watcher
from agentrun.executors.port import Elastic, Executor
from agentrun.job.job import Job
from agentrun.launch.capped import refused, run_capped
from agentrun.launch.channel import RunnerEnd
from agentrun.launch.meters import Meters
from agentrun.launch.outage import LOOK_SECONDS, Outages
from agentrun.launch.pricing import no_usage
from agentrun.launch.progress import ProgressReports
from agentrun.launch.speed import Speed
from agentrun.launch.throttle import Gate
from agentrun.launch.warnings import Warnings
from agentrun.money.usage import Reported
from agentrun.outputs.files import ItemFiles, ItemFilesError
from agentrun.outputs.logs import DONE_BYTES, KEPT_BYTES, ItemLogs
from agentrun.runs.units import Ended, Unit, Work
from agentrun.system.shortage import SHORTAGE
from agentrun.values.json import is_empty

if TYPE_CHECKING:
    from agentrun.launch.slots import Slots
    from agentrun.runs.run import Run

BACKOFF_SECONDS, BACKOFF_MOST_SECONDS = 1.0, 60.0
LOSSES, LOSSES_IN_COMPANY = 5, 3
"""How often an item is tried again after its machine was lost: a sixth time, the item may be the reason. After the
third time it is run alone, and last, so that it does not take its neighbours there with it again and again."""
SHORTAGE_WAITS = 3
"""How often an item waits, longer each time, for what the machine lacks while nothing else is running."""


class Attempts:
    """Runs the attempts of items.

    `commit` returns when a step is on disk, `recall` gives the records of the steps at some refs, `tell` is told how
    fast it goes when that changes. `use` comes before the first attempt.
    """

    def __init__(
        self,
        executor: Executor,
        job: Job,
        *,
        run: Run,
        launch: int,
        commit: Callable[..., Awaitable[None]],
        recall: Callable[[Sequence[int]], Awaitable[Sequence[Record]]],
        logs: ItemLogs,
        files: ItemFiles,
        watcher: Watcher,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tell: Callable[[str], None] = lambda words: None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._executor = executor
        self._job = job
        self.run = run
        self._launch = launch
        self._series = run.checkpoint.series
        self._commit = self.commit_usage = commit
        self._recall = recall
        self._logs = logs
        self._files = files
        self._folder = files.root
        self._elastic = executor if isinstance(executor, Elastic) else None
        most = self._elastic.most if self._elastic is not None else job.concurrency
        self._log_paths = [logs.slot_path(slot) for slot in range(most)]
        self._watcher = watcher
        self._progress = ProgressReports(watcher)
        self.warn = Warnings(watcher)
        self._sleep = sleep
        self._clock = clock
        self.speed = Speed(run, clock=clock, wall_clock=wall_clock, tell=tell)
        self.outages = Outages(job.concurrency, in_order=bool(job.carry), clock=clock)
        self.unpriced: Reported | None = None
        """The first usage that has no price, and so cannot count towards the budget."""
        self._running = 0
        self._numbers: dict[int, tuple[int, int]] = {}
        """By row, of items that were parked or went back in this launch: their generation, and the number of their last
        attempt. No two attempts have the same id."""
        self._losses: Counter[int] = Counter()
        """By row: how often its machine was lost in this launch."""
        self._stopping = asyncio.Event()
        self.meters: Meters | None = None
        if job.rate is not None or job.tokens is not None:
            self.meters = Meters(job, stops_within=self.stops_within, clock=wall_clock)
            self.meters.restore(run.context, died_with=len(run.checkpoint.running))
            run.keepers.append(self.meters)

    def use(self, slots: Slots) -> None:
        self._slots = self.speed.slots = slots
        self.speed.restore()

    def stop(self) -> None:
        """Nothing is begun or retried from here on: an item that would be goes back. Attempts in flight continue."""
        self._stopping.set()
        if self._elastic is not None:
            self._elastic.hold()
        if self.speed.gate is not None:
            self.speed.gate.turn_away()

    def resume(self) -> None:
        self._stopping.clear()
        if self._elastic is not None:
            self._elastic.resume()

    async def settle(self, slot: int, work: Work) -> Ended:
        """Attempt the item until it is settled, or goes back. Cancelling ends the attempt in flight."""
        run, speed, row = self.run, self.speed, work.row
        tries: list[Try] = []
        waits, in_turn, taken, end = 0, False, None, None
        generation = run.ledger.generations.get(row, 0)
        work.number = number = self._last_number(row, generation) if self._numbers else 0
        if run.ledger.usages and (before := run.ledger.usages.get(row)) is not None:
            run.purse.begin(row, before)
        if run.item_budget and (over := run.over_budget(work)):
            return refused(over, launch=self._launch, number=number + 1)
        if self.outages.in_doubt and (has_ended := await self._resolve_doubt(work)) is not None:
            return has_ended
        while True:
            if end is not None and end.committing:
                # Cut off while the disk was writing what it has done: that lands before the next attempt asks for it.
                await self._commit()
                if self._stopping.is_set():
                    return Ended("back")
            remembered = None
            if run.ledger.steps and (refs := run.ledger.steps.get(row)):
                remembered = Remembered.of(await self._recall(refs))
            if self.meters is not None:
                work.doing = "waiting for the rate limit"
                if (taken := await self.meters.enter()) is None:
                    return Ended("back")
                work.doing = ""
            if speed.gate is not None and not await self._pass(speed.gate, work, in_turn=in_turn):
                if self.meters is not None:
                    self.meters.leave(taken or 0.0, None)
                return Ended("back")
            work.number = number = number + 1
            attempt = Attempt(
                item=work.item,
                generation=generation,
                launch=self._launch,
                number=number,
                run_id=run.checkpoint.run_id,
                series=self._series,
                params=self._job.params,
                carry=run.carry,
                timeout_seconds=self._job.timeout_seconds,
                log_path=self._log_paths[slot],
                folder=self._folder,
                slot=slot,
            )
            if speed.refused and row in speed.refused:
                attempt.refused = speed.refused[row].count
            end = RunnerEnd(self, slot, work, attempt, remembered, is_over=asyncio.Event() if run.item_budget else None)
            at, began = round(time.time(), 3), self._clock()
            self._running += 1
            try:
                running = self._executor.run(attempt, end.answer)
                outcome = await (running if end.is_over is None else run_capped(running, end.is_over))
            except BaseException:
                if speed.gate is not None:
                    speed.gate.leave(began, accepted=False)
                raise
            finally:
                self._running -= 1
                end.is_open = False
                work.doing = ""
                if self._progress.keys:
                    self._progress.end(work.item.key)
            seconds = round(self._clock() - began, 4)
            tried = Try(launch=self._launch, number=attempt.number, at=at, seconds=seconds, usage=end.usage)
            tries.append(tried)
            if self.meters is not None:
                self.meters.leave(taken or 0.0, end.usage.tokens if end.usage is not None else None)
                if end.usage is None and outcome.kind == "done" and self._job.tokens is not None:
                    self.warn(no_usage(self._job, work.item.key), about="usage")
            ended = self._end(outcome, end, tries)
            if ended.failure is not None and self._job.adapt and is_refusal(ended.failure):
                if (instead := await self._wait_after_refusal(slot, work, ended, began)) is not None:
                    return instead
                tries.pop()
                number -= 1
                in_turn = is_overload(ended.failure)
                continue
            if speed.gate is not None:
                speed.leave(row, ended, began)
            if (ended.failure is not None or self.outages.server) and self._is_unreached(work, ended):
                return ended if self.outages.is_suspect(row) else Ended("back")
            if ended.kind == "done":
                if outcome.made_files:
                    await self._publish(work, Path(attempt.work), ended)
                if is_empty(ended.output or b"") and not ended.files and ended.kind == "done":
                    self._take_empty(ended)
                if ended.kind == "done":
                    path = self._log_paths[slot]
                    if self._job.keep_logs and exists(path) and getsize(path):
                        self._keep_log_of_done(slot, work.item.key, ended, tried)
                    return ended
            if ended.kind != "back":
                self._describe(slot, work.item.key, ended, tried)
            if self._waits_for_machine(ended, waits):
                waits += 1
                tries.pop()
            elif self._is_lost_with_host(ended) and self._losses[row] < LOSSES:
                self._losses[row] += 1
                tries.pop()
                if self._losses[row] == LOSSES_IN_COMPANY and self._job.concurrency > 1:
                    run.suspects.add(row)
                    return Ended("back")
            elif not self._is_retried(ended):
                if ended.kind == "waiting":
                    self._numbers[row] = (generation, number)
                if ended.kind == "failed" and ended.failure is not None and ended.failure.server:
                    self.outages.in_doubt[row] = ended
                    return Ended("back")
                return ended
            if (why := await self._wait_for_retry(work, ended, len(tries) + waits + self._losses[row])) is not None:
                if self.outages.is_down and self.outages.is_suspect(row):
                    return ended
                return Ended("back", budget_reached=why)

    def keep_number(self, work: Work) -> None:
        """The item goes back: should this launch take it again, its attempts are not numbered from 1 again."""
        if work.number:
            self._numbers[work.row] = (self.run.ledger.generations.get(work.row, 0), work.number)

    def _last_number(self, row: int, generation: int) -> int:
        """The number of the item's last attempt in this launch; 0 if there was none."""
        of_generation, number = self._numbers.pop(row, (generation, 0))
        return number if of_generation == generation else 0

    async def forget_files(self, work: Work, generation: int) -> None:
        """The item is done, and that is on disk: its scratch is no longer needed."""
        await asyncio.to_thread(self._files.forget, work.item.key, generation)

    # ---- retrying

    def _is_retried(self, ended: Ended) -> bool:
        if ended.kind != "failed" or ended.judgement is None or ended.judgement.verdict != "transient":
            return False
        if len(ended.tries) > self._job.retries:
            return False
        # A timeout, or a worker that died, is retried once, however many other attempts there were.
        most = ended.judgement.most_attempts
        return most is None or sum(one.bounded for one in ended.tries) < most

    def _waits_for_machine(self, ended: Ended, waits: int) -> bool:
        """Whether the item waits for what the machine lacks, which uses up none of its retries.

        What is running may give some back; if nothing is, waiting soon makes no sense.
        """
        lacks = ended.failure is not None and ended.failure.code == SHORTAGE
        return lacks and not self._stopping.is_set() and (self._running > 0 or waits < SHORTAGE_WAITS)

    def _is_lost_with_host(self, ended: Ended) -> bool:
        """Whether the attempt was lost with its machine, which uses up none of the item's retries."""
        return ended.failure is not None and ended.failure.code == HOST_LOST and not self._stopping.is_set()

    async def _wait_for_retry(self, work: Work, ended: Ended, number: int) -> str | None:
        """Wait after attempt `number`; then None, or why the item goes back instead: empty if the launch stops."""
        assert ended.failure is not None
        seconds = max(asked_wait(ended.failure) or 0.0, backoff_seconds(number))
        self._watcher(Retrying(work.item.key, ended.failure.cause, number, seconds))
        work.doing = f"waiting for attempt {number + 1}"
        try:
            if await self.stops_within(seconds):
                return ""
        finally:
            work.doing = ""
        return self.run.purse.refusal(again=work.row)

    # ---- refusals, and servers that are down

    async def _pass(self, gate: Gate, work: Work, *, in_turn: bool) -> bool:
        """Wait at the gate; False if the item goes back, because fewer may be in flight or the launch stops."""
        if self._stopping.is_set():
            return False
        work.doing = "waiting for its turn"
        try:
            return await gate.enter(in_turn=in_turn)
        finally:
            work.doing = ""

    async def _wait_after_refusal(self, slot: int, work: Work, ended: Ended, began: float) -> Ended | None:
        """What the item is asked to wait for; then None, or how it ends instead."""
        self._logs.empty(slot)
        if self.outages.server:
            self.outages.note_answer()
        has_used = ended.tries[-1].usage is not None
        seconds = self.speed.refuse(work.row, ended, began, running=self._running)
        if isinstance(seconds, Ended):
            return seconds
        if seconds > 0:
            work.doing = "asked to wait"
            if await self.stops_within(seconds):
                return Ended("back")
            work.doing = ""
        why = self.run.purse.refusal(again=work.row) if has_used and self.run.purse.limits else None
        return Ended("back", budget_reached=why or "") if why or self._stopping.is_set() else None

    async def _resolve_doubt(self, work: Work) -> Ended | None:
        """How an item in doubt has ended, or that it goes back because the launch stops; None if it is tried again."""
        while self.outages.waits_for_another(work.row, self._rows_in_flight):
            work.doing = "waiting for the server"
            if await self.stops_within(LOOK_SECONDS):
                return Ended("back")
        work.doing = ""
        return self.outages.resolve(work.row)

    @property
    def _rows_in_flight(self) -> list[int]:
        return [one.row for one in self._slots.in_flight.values()]

    def _is_unreached(self, work: Work, ended: Ended) -> bool:
        """Whether the attempt ended so because the server is down, which makes the launch hold."""
        outages, failure = self.outages, ended.failure
        if failure is None or not failure.server:
            # An error without a status may come from a connection that broke off: that is no answer, and no sign.
            if ended.kind != "back" and (failure is None or failure.status is not None or ended.kind != "failed"):
                outages.note_answer()
            return False
        outages.note_sign(failure.server, work.row, self._rows_in_flight)
        if outages.is_down and self._slots.stop_reason is None:
            has_worked = self.run.agent in self.run.ledger.versions
            self._slots.stop(outages.hold(failure.cause, has_worked=has_worked))
        return outages.is_down

    async def stops_within(self, seconds: float) -> bool:
        """Wait; True as soon as the launch stops."""
        waits = {asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._stopping.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._stopping.is_set()

    # ---- for its runner ends

    async def commit_step(self, work: Work, record: Record) -> None:
        if record.usage is not None:
            # The next checkpoint has this record, even if the attempt is cancelled before that.
            self.run.purse.recorded[work.row] = record.usage
        await self._commit(Unit(work.row, None, record))

    def log(self, slot: int, text: str) -> None:
        self._logs.append(slot, text)

    def report_progress(self, key: str, text: str) -> None:
        self._progress.report(key, text)

    def miss_price(self, reported: Reported) -> None:
        self.unpriced = self.unpriced or reported

    # ---- how an attempt ended

    def _end(self, outcome: Outcome, end: RunnerEnd, tries: list[Try]) -> Ended:
        ended = Ended("done", outcome.output, tries=tries, carry=end.carry, carry_set=end.carry_set)
        ended.warning = end.warning
        if outcome.kind == "cancelled":
            ended.kind = "back"
        elif end.failure is not None:
            self._fail(ended, end.failure)
        elif end.question is not None:
            # Also if the agent continued regardless: what it made without the answer does not count.
            ended.kind, ended.question = "waiting", end.question
        elif outcome.kind == "skipped":
            ended.kind, ended.failure = "skipped", outcome.failure
        elif outcome.kind != "done":
            self._fail(ended, outcome.failure or Failure("lost", "the attempt ended without reporting an outcome"))
        failure = ended.failure
        may_have_cost = failure is not None and failure.origin in ("timeout", "lost") and failure.code != ENGINE_LOST
        if may_have_cost and end.usage is None:
            self.run.purse.charge_unknown(end.work.row)
        return ended

    def _fail(self, ended: Ended, failure: Failure) -> None:
        ended.failure, ended.judgement = failure, judge(failure)
        verdict = ended.judgement.verdict
        ended.kind = "back" if verdict == "everyone" else "skipped" if verdict == "skip" else "failed"

    def _take_empty(self, ended: Ended) -> None:
        if self._job.empty == "fail":
            self._fail(ended, Failure("output", "empty output", code=EMPTY))
        else:
            ended.is_empty = True

    async def _publish(self, work: Work, folder: Path, ended: Ended) -> None:
        """What the attempt left in `out` is in its place, and on disk, before the checkpoint that names it."""
        ended.made_files = True
        try:
            ended.files = await asyncio.to_thread(self._files.publish, folder, self.run.output, work.item.key)
        except ItemFilesError as error:
            self._fail(ended, Failure("output", str(error)))

    def _keep_log_of_done(self, slot: int, key: str, ended: Ended, tried: Try) -> None:
        # A result is worth more than its log: on a full disk the commit may still succeed.
        with suppress(AgentrunError):
            self._describe(slot, key, ended, tried, most=DONE_BYTES)

    def _describe(self, slot: int, key: str, ended: Ended, tried: Try, *, most: int = KEPT_BYTES) -> None:
        if ended.failure is not None:
            tried.cause = ended.failure.cause[:500]
        tried.bounded = ended.judgement is not None and ended.judgement.most_attempts is not None
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(tried.at))
        heading = f"launch {tried.launch}, attempt {tried.number}, {stamp}: {tried.cause or ended.kind}"
        self._logs.keep(slot, key, heading, most=most)


def backoff_seconds(number: int) -> float:
    """How long to wait after the attempt of this number: exponential, with jitter, and never at once."""
    from tenacity import RetryCallState, wait_random_exponential

    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    state.attempt_number = number
    random = wait_random_exponential(multiplier=BACKOFF_SECONDS, max=BACKOFF_MOST_SECONDS)(state)
    return float(max(random, min(BACKOFF_SECONDS * 2 ** (number - 1), BACKOFF_MOST_SECONDS) / 2))

"""A launch: one process working on a run, from the lock to the last checkpoint."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

from agentrun.checkpoint.ledger import DONE
from agentrun.checkpoint.summary import Summary
from agentrun.errors import AgentrunError, LaterError
from agentrun.events import Began, Progress, Warned, Watcher, ignore
from agentrun.executors.port import Elastic, Executor
from agentrun.items.open import Source
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.job.kept import JOB_JSON
from agentrun.job.options import Options
from agentrun.launch.attempts import Attempts
from agentrun.launch.beginning import carry_files, compact, update_context
from agentrun.launch.clusters import join_cluster, leave_cluster, note_clean_stop
from agentrun.launch.committer import Checkpointing
from agentrun.launch.ending import complete, cut_short, how_it_stopped, incomplete, taken
from agentrun.launch.mail import Mail
from agentrun.launch.pause import Pauses
from agentrun.launch.piloting import selection_is_over
from agentrun.launch.prepare import Preparation, Prepared
from agentrun.launch.slots import Slots
from agentrun.launch.stopping import StopReason
from agentrun.launch.time_limit import TimeLimit, time_limit_of
from agentrun.money.estimate import Estimate
from agentrun.outputs.claim import Claim, OutputTakenError, drop_claim
from agentrun.outputs.files import ItemFiles
from agentrun.outputs.logs import ItemLogs
from agentrun.outputs.output import Output
from agentrun.outputs.workspace import Workspace
from agentrun.runs.feed import feed, feed_again, feed_run
from agentrun.runs.intake import Taken
from agentrun.runs.plan import list_items
from agentrun.runs.recovery import check_plan, run_output
from agentrun.runs.run import Run
from agentrun.runs.units import Unit
from agentrun.store.local.pointer import drop_pointer
from agentrun.store.moving import check_not_moved
from agentrun.store.port import HistoryEvent, Lease, Store
from agentrun.store.registry import register
from agentrun.system.deadlines import Deadline
from agentrun.system.disk import Disk
from agentrun.values.clock import now_text
from agentrun.values.units import format_duration

COMPACT_OVER_BYTES = 64 * 1024 * 1024
LEASE_LOOK_SECONDS = 1.0
_SIGNAL_NAMES = {1: "SIGHUP", 2: "Ctrl-C", 15: "SIGTERM"}


class Launch:
    """`prepare` finds out what to do, `work` does it, `close` gives the lock back.

    Whatever happens in between, what is on disk can be resumed.
    """

    lease: Lease
    """Set by `prepare`."""

    def __init__(
        self,
        job: Job,
        store: Store,
        *,
        agent: str,
        options: Options | None = None,
        watcher: Watcher = ignore,
        kept: Layer | None = None,
        job_json: bytes | None = None,
        items: Iterable[Any] | None = None,
        stdin: BinaryIO | None = None,
        disk: Disk | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wall_clock: Callable[[], float] = time.time,
        compact_over_bytes: int = COMPACT_OVER_BYTES,
    ) -> None:
        self.progress = Progress()
        self.workspace = Workspace(store)
        self._job = job
        self._store = store
        self._options = options or Options()
        self._watcher = watcher
        self._kept = dict(kept.values) if kept is not None else {}
        self._job_json = job_json
        self._disk = disk or Disk()
        self._sleep = sleep
        self._wall_clock = wall_clock
        self._compact_over_bytes = compact_over_bytes
        self.time_limit = time_limit_of(job, self._options, now=wall_clock())
        """When it stops starting items, if that is given."""
        self._claim = Claim(job.name, store.folder)
        self._preparation = Preparation(
            job, store, self.workspace, agent, self._options, watcher, self._claim, items, stdin, self._disk,
            notes=(self.time_limit.note,) if self.time_limit is not None else (),
        )  # fmt: skip
        self.is_locked = False
        self._early_stop: StopReason | None = None
        self._grace: Deadline | None = None
        self._estimate: Estimate | None = None
        self._prepared: Prepared
        self._run: Run
        self._source: Source
        self._output: Output
        self._slots: Slots | None = None
        self._most = job.concurrency
        """How many items may be in flight at most."""
        self._pauses: Pauses
        """Set with `_slots`."""

    # ---- preparing

    def prepare(self) -> Summary | None:
        """Take the lock, read what is there, make the plan. Returns a summary if there is nothing to do.

        An unfinished run does not change on disk, except that --fresh puts one aside that cannot be read; a run whose
        summary is filed is cleared.
        """
        self.lease = self._store.lock(wait_seconds=self._options.wait_seconds)
        self.is_locked = True
        check_not_moved(self._store, self._job.name, fresh=self._options.fresh)
        prepared = self._preparation.begin()
        if isinstance(prepared, Summary):
            return prepared
        self._prepared, self._run, self._source = prepared, prepared.run, prepared.source
        self._output = run_output(self._job, self._store, self._run.checkpoint, options=self._options)
        posted = [one.name for one in self._run.taken if isinstance(one, Taken) and one.name]
        if self._store.claim(posted) != set(posted):
            raise LaterError(
                f"{self._job.name}: what people posted was taken back while this launch began; run the same command "
                f"again"
            )
        return None

    # ---- working

    async def work(self, executor: Executor) -> Summary:
        """Run the items, commit how they end, and finish the run if it is complete. Returns the summary."""
        run, job = self._run, self._job
        self.progress.to_run = run.plan.to_run - run.plan.others
        logs, files = (
            ItemLogs(self.workspace.logs, keep_done=job.keep_logs),
            ItemFiles(self.workspace.folder, self._disk),
        )
        # A store elsewhere may not answer for a while; signals and other items do not wait for it.
        has_thread = job.concurrency > 1 or bool(self._store.where)
        checkpointing = Checkpointing(self._store, run, self.progress, has_thread=has_thread)
        attempts = Attempts(
            executor,
            job,
            run=run,
            launch=run.context.launches + 1,
            commit=checkpointing.commit,
            recall=checkpointing.read,
            logs=logs,
            files=files,
            watcher=self._watcher,
            sleep=self._sleep,
            tell=lambda words: self._note("speed", reason=words or "no limit"),
        )
        if isinstance(executor, Elastic):
            self._most = executor.most
        limit = self._options.limit
        slots = self._slots = Slots(run, attempts, checkpointing, logs=logs, watcher=self._watcher, limit=limit)
        checkpointing.slots = slots
        attempts.use(slots)
        self.progress.in_flight, self.progress.find_slowed = slots.in_flight, lambda: attempts.speed.words
        mail = Mail(run, self._store, checkpointing, slots, watcher=self._watcher, note=self._note)
        self._pauses = Pauses(
            run,
            self._options,
            self.time_limit,
            executor=executor,
            slots=slots,
            checkpointing=checkpointing,
            mail=mail,
            watcher=self._watcher,
            note=self._note,
            clock=self._wall_clock,
            sleep=self._sleep,
        )
        if self._prepared.abandoned is not None:
            # What it left on other machines is still to be ended.
            run.context.engine = self._prepared.abandoned.context.engine
        if isinstance(executor, Elastic):
            join_cluster(run, executor, slots, checkpointing, warn=attempts.warn)
            try:
                await executor.connect()
            except BaseException:
                checkpointing.close()
                logs.close(self._most)
                raise
        if self._early_stop is not None:
            slots.stop(self._early_stop)
        meanwhile = [asyncio.ensure_future(self._trim(logs))]
        if self.time_limit is not None:
            meanwhile.append(asyncio.ensure_future(self._watch_time(self.time_limit, slots)))
        if self.lease.expires:
            meanwhile.append(asyncio.ensure_future(self._watch_lease(slots)))
        error: BaseException | None = None
        try:
            try:
                await self._begin(slots, checkpointing, mail, logs, files)
                if not isinstance(executor, Elastic):
                    await leave_cluster(run, warn=attempts.warn, stops_within=attempts.stops_within)
                await executor.start()
                meanwhile.append(asyncio.ensure_future(mail.watch()))
                await self._run_all(slots, checkpointing, mail)
            except BaseException as raised:
                error = raised
                raise
            finally:
                # With `running` empty: a clean stop, whatever the reason, as long as the disk still works.
                slots.close()
                note_clean_stop(run, executor)
                if not checkpointing.has_failed:
                    run.checkpoint.stopped = how_it_stopped(run, slots.stop_reason, error)
                    await checkpointing.commit()
        finally:
            for task in meanwhile:
                task.cancel()
            checkpointing.close()
            logs.close(self._most)
        return self._end(slots, files)

    async def _begin(
        self, slots: Slots, checkpointing: Checkpointing, mail: Mail, logs: ItemLogs, files: ItemFiles
    ) -> None:
        """The launch's own first commit. Before it nothing is unlinked, told or started."""
        run, store, spool = self._run, self._store, self._prepared.spool
        outputs_before = {run.context.output}
        run.context.kept = self._kept
        update_context(run, store, self._options, spool=spool)
        if self._prepared.abandoned is not None:
            outputs_before.add(self._prepared.abandoned.context.output)
            store.finish(Summary.of(self._prepared.abandoned, status="abandoned"))
        died_with = run.checkpoint.running
        run.charge_left()
        is_quiet = not run.taken and not run.dead and not run.context.files_from
        if is_quiet:
            self._open(slots)
        await checkpointing.commit()
        self.progress.others = run.context.others
        if self._job_json is not None:
            store.keep(JOB_JSON, [self._job_json])
        if store.folder is not None:
            register(store.folder.parent)
            if not store.where:
                drop_pointer(store.folder)
        store.prune(keep=[*([spool] if spool else []), *self._output.side_files])
        for output in outputs_before - {run.context.output}:
            drop_claim(output, store.folder)
        self._output.sweep(self._disk)
        logs.adopt(died_with, f"launch {run.context.launches - 1}, when the runner died")
        if not run.resumed:
            logs.retire()
        self._note("restore" if run.resumed else "launch", run_id=run.run_id)
        for row, key in list(run.dead.items()):
            await checkpointing.commit(Unit(row, -1, run.record_of_death(row, key)))
        await mail.commit(run.taken, are_counted=True)
        await carry_files(run, store, files, checkpointing)
        compact(run, store, slots, over_bytes=self._compact_over_bytes)
        files.sweep(self._is_done, run.output)
        if not is_quiet:
            self._open(slots)
            await checkpointing.commit()
        self.progress.began = time.monotonic()
        self._watcher(Began(self.progress))

    # ---- which items

    def _open(self, slots: Slots) -> None:
        source, run = self._source, self._run
        again = partial(feed_again, source, run, slots.busy)
        slots.open(feed_run(source, run, slots.busy), self._most, again=again)

    async def _run_all(self, slots: Slots, checkpointing: Checkpointing, mail: Mail) -> None:
        run, ledger = self._run, self._run.ledger
        while True:
            landed_before = checkpointing.landed
            await mail.during(slots.run())
            if run.suspects and slots.stop_reason is None and not slots.in_flight:
                slots.open(feed(self._source, ledger, run.suspects.__contains__), 1)
                await checkpointing.commit()
                await mail.during(slots.run())
            is_outage = slots.stop_reason is not None and bool(slots.stop_reason.probe_at)
            if run.has_more and await self._pauses.wait():
                if not is_outage:
                    self._open(slots)
                await checkpointing.commit()
                continue
            if ledger.counts["pending"] and (slots.stop_reason is not None or run.is_held_up):
                return
            self._list_again()
            if slots.stop_reason is not None or not ledger.counts["pending"]:
                return
            if run.only is not None and run.only.is_over(ledger):
                reason, self._estimate = await selection_is_over(run, run.only, checkpointing.read)
                slots.stop(reason)
                return
            if checkpointing.landed == landed_before:
                raise LaterError(
                    f"{self._job.name}: the items change while they are read; resume when they are at rest"
                )
            run.to_retry.clear()
            self._open(slots)
            await checkpointing.commit()

    def _list_again(self) -> None:
        """Before a run ends: what is new or changed by now is run too."""
        run, job = self._run, self._job
        # Answers and redo that came while this launch worked have made some pending again.
        known = run.ledger.counts["pending"]
        try:
            plan = list_items(
                self._source,
                run.ledger,
                tries_again=lambda row: False,
                keep_changed=job.keep_changed,
                only=run.only,
            )
            check_plan(plan, self._source, accepted=run.context.gone, options=self._options, is_new_run=False)
        except AgentrunError as error:
            raise LaterError(f"{error.message} (the items changed while this launch was running)") from None
        found = plan.run + plan.changed - known
        if job.carry and found + plan.moved:
            raise LaterError(f"{job.name}: items changed during this launch; run the same command to go back to them")
        if found:
            self._watcher(Warned(f"new or changed since the launch began, and run now: {found}"))
        run.context.gone = plan.gone
        run.plan.contents_now = plan.contents_now

    def _is_done(self, digest: bytes) -> bool:
        ledger = self._run.ledger
        row = ledger.find(digest)
        return row >= 0 and ledger.states[row] == DONE

    async def _trim(self, logs: ItemLogs) -> None:
        while True:
            await asyncio.sleep(1)
            try:
                logs.trim(self._most)
            except OSError as error:
                # A full disk stops the run by its next commit; a long log is no reason to.
                self._watcher(Warned(f"the items' logs are no longer kept short: {error.strerror}"))
                return

    # ---- stopping and ending

    def request_stop(self, signal_number: int, *, by: str = "") -> None:
        """On a signal, or as if on one: no new items; those in flight have `grace` to finish. A second request in that
        time ends them at once. `by` says who asked, if it was not the signal itself."""
        name = by or _SIGNAL_NAMES.get(signal_number, str(signal_number))
        reason = StopReason(128 + signal_number, f"stopped by {name}", has_grace=True)
        if self._slots is None:
            self._early_stop = reason
            return
        self._slots.stop(reason)
        self._pauses.wake()
        if self._grace is not None:
            self._slots.cancel()
        else:
            self._grant_grace(self._slots)

    async def _watch_time(self, limit: TimeLimit, slots: Slots) -> None:
        """When the time is over: no new items; those in flight have `grace` to finish."""
        await limit.wait(clock=self._wall_clock)
        slots.stop(limit.stop_reason)
        self._pauses.wake()
        if self._grace is None:
            self._grant_grace(slots)

    async def _watch_lease(self, slots: Slots) -> None:
        """When the lease has run out, another runner may begin the items in flight: they are ended at once.

        The next commit then waits for the store. If that still knows us as the holder, the launch continues.
        """
        stops, trouble = 0, ""
        while True:
            await asyncio.sleep(LEASE_LOOK_SECONDS)
            if bool(self._store.trouble) != bool(trouble):
                patience = format_duration(self._job.store_patience_seconds)
                trouble = self._store.trouble
                said = f"{trouble}; trying again for up to {patience}" if trouble else "the store answers again"
                self._watcher(Warned(said))
            while stops < self.lease.stops_asked:
                stops += 1
                self.request_stop(signal.SIGTERM, by="agentrun stop")
            if self.lease.is_lost and (slots.stop_reason is None or slots.in_flight):
                reason = f"the lease on the job in {self._store.where} has run out"
                slots.stop(StopReason(75, reason, resume_at=now_text(), waits_for="the store", is_at_once=True))
                slots.cancel()

    def _grant_grace(self, slots: Slots) -> None:
        self._grace = Deadline(self._job.grace_seconds, slots.cancel)

    def _end(self, slots: Slots, files: ItemFiles) -> Summary:
        """Everything is settled: finish the run. Otherwise write what there is beside it, and say how it stopped."""
        run, store, reason = self._run, self._store, slots.stop_reason
        try:
            if run.is_complete:
                # Before the checkpoint says that what lies there is ours.
                self._claim.check()
                run.context.completing = str(run.output)
                store.commit(run.next_checkpoint({}))
                summary = complete(run, store, self._output, self._disk, self._claim)
                files.sweep(lambda digest: True)
                self._note("stop", reason="finished")
                return summary
            if reason is not None and reason.error is not None:
                self._note("stop", reason=reason.text)
                raise reason.error
            if reason is not None:
                summary = cut_short(run, reason)
                summary.estimate = self._estimate
            else:
                summary = incomplete(run, store, self._output, self._disk, self._claim)
        except OutputTakenError as error:
            reason = taken(run, error)
            run.context.completing, run.checkpoint.stopped = "", how_it_stopped(run, reason)
            store.commit(run.next_checkpoint({}))
            summary = cut_short(run, reason)
        self._note("stop", reason=summary.reason)
        return summary

    def _note(self, event: str, **details: Any) -> None:
        launches, last_completed = self._run.context.launches, self._run.checkpoint.last_completed
        self._store.note(
            HistoryEvent(at=now_text(), event=event, launch=launches, last_completed=last_completed, **details)
        )

    def close(self) -> None:
        self._claim.close()
        if self.is_locked:
            self.lease.release()

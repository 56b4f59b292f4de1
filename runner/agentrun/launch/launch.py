"""A launch: one process working on a run, from the lock to the last checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.ledger import DONE, FAILED, PENDING
from agentrun.checkpoint.summary import new_checkpoint, summarise
from agentrun.errors import AgentrunError, CheckpointError, ItemsError, LaterError, PlanError
from agentrun.events import Began, Planned, Progress, Warned, Watcher, ignore
from agentrun.executors.port import Executor
from agentrun.items.open import Source, encode_python_items
from agentrun.job.job import STANDARD_INPUT, Job
from agentrun.job.options import Options
from agentrun.launch.attempts import Attempts
from agentrun.launch.committer import Committer
from agentrun.launch.ending import complete, cut_short, incomplete
from agentrun.launch.mail import Mail
from agentrun.launch.slots import Slots, StopReason
from agentrun.outputs.files import ItemFiles
from agentrun.outputs.logs import ItemLogs
from agentrun.runs.feed import feed
from agentrun.runs.plan import list_items
from agentrun.runs.recovery import changed_run, check_plan, check_run_output, open_items, place_of, recover
from agentrun.runs.run import Run
from agentrun.runs.units import Unit, Work
from agentrun.store.port import Store
from agentrun.system.disk import Disk, discard_temporaries
from agentrun.system.process import boot_id
from agentrun.values.clock import now_text

if TYPE_CHECKING:
    import tempfile


COMPACT_OVER_BYTES = 64 * 1024 * 1024
_PIECE_BYTES = 1 << 20
_SIGNAL_NAMES = {1: "SIGHUP", 2: "Ctrl-C", 15: "SIGTERM"}


class Launch:
    """`prepare` finds out what is to be done, `work` does it, `close` gives the lock back.

    Whatever happens in between, what is on disk can be resumed.
    """

    def __init__(
        self,
        job: Job,
        store: Store,
        *,
        agent: str,
        options: Options | None = None,
        watcher: Watcher = ignore,
        kept: dict[str, Any] | None = None,
        job_json: bytes | None = None,
        items: Iterable[Any] | None = None,
        stdin: BinaryIO | None = None,
        disk: Disk | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        compact_over_bytes: int = COMPACT_OVER_BYTES,
    ) -> None:
        self.progress = Progress()
        self._job = job
        self._store = store
        self._agent = agent
        self._options = options or Options()
        self._watcher = watcher
        self._kept = kept or {}
        self._job_json = job_json
        self._items = items
        self._stdin = stdin
        self._disk = disk or Disk()
        self._sleep = sleep
        self._compact_over_bytes = compact_over_bytes
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._spool: str | None = None
        self._abandoned: Checkpoint | None = None
        self._early_stop: StopReason | None = None
        self._signals = 0
        self._slots: Slots | None = None
        self._landed_units = 0
        self._run: Run
        self._source: Source
        self._logs: ItemLogs
        self._files: ItemFiles
        self._mail: Mail

    # ---- preparing

    def prepare(self) -> dict[str, Any] | None:
        """Take the lock, read what is there, make the plan. Returns a summary where there is nothing to do.

        Nothing that was on disk is changed here, but a state that cannot be read with --fresh.
        """
        self._store.lock(wait_seconds=self._options.wait_seconds)
        try:
            found = self._load()
        except CheckpointError as error:
            if not self._options.fresh:
                raise
            self._watcher(Warned(f"{error.message}; it is kept as runs/{self._store.set_aside()}.*"))
            found = None
        if not self._options.fresh and not isinstance(found, Checkpoint):
            found = self._reopen() or found
        if isinstance(found, dict):
            return found
        if found is None and self._options.resume:
            return self._nothing_to_resume()
        if found is not None and self._options.fresh:
            self._abandoned, found = found, None
        self._plan(found or new_checkpoint(self._job), resumed=found is not None)
        return None

    def _load(self) -> Checkpoint | dict[str, Any] | None:
        loaded = self._store.load(accept_edits=self._options.accept_edits)
        if loaded.finished is not None:
            # The last launch died between filing the summary and clearing the state.
            self._store.finish(loaded.finished)
            self._store.prune()
            if loaded.finished.get("status") == "abandoned":
                return None
            self._watcher(Warned("the run was finished already; its state is cleared now"))
            return {**loaded.finished, "exit_code": 0, "nothing_to_do": True}
        return loaded.checkpoint

    def _reopen(self) -> Checkpoint | None:
        """What people posted about the run that has finished opens a new one, which begins with its records."""
        run_id = changed_run(self._store)
        checkpoint = self._store.reopen(run_id) if run_id else None
        if run_id and checkpoint is None:
            self._watcher(Warned("what was posted about the last run cannot be done: its records are no longer kept"))
        return checkpoint

    def _nothing_to_resume(self) -> dict[str, Any]:
        ended = self._store.summaries()
        if not ended:
            name = self._job.name
            raise PlanError(f"{name}: has no run to go on with; begin one with: agentrun start {name}")
        return {**ended[0], "exit_code": 0, "nothing_to_do": True}

    def _plan(self, checkpoint: Checkpoint, *, resumed: bool) -> None:
        job, options, context = self._job, self._options, checkpoint.context
        ended = self._store.summaries()
        check_run_output(job, checkpoint, ended=ended, options=options)
        self._spool = context.get("spool")
        self._spool_items(launch=context["launches"] + 1)
        source = open_items(job, self._folder, checkpoint, ended=ended, spool=self._spool)
        if source is None:
            raise ItemsError(f"{job.name}: its items came from outside, and are not kept; give them again")
        self._source = source
        self._run = recover(
            self._store, job, self._source, checkpoint, resumed=resumed, agent=self._agent, options=options
        )
        self._watcher(
            Planned(
                job=job,
                plan=self._run.plan,
                run_id=checkpoint.run_id,
                launch=context["launches"] + 1,
                output=self._run.output,
                resumed=resumed,
                last=None if resumed or not ended else ended[0],
                notes=tuple(self._run.notes),
                from_run=context.get("from_run", "") if not context["launches"] else "",
            )
        )

    def _spool_items(self, *, launch: int) -> None:
        """Standard input and Python items are kept in the run's folder, under a name that is new."""
        if self._items is not None:
            chunks: Iterable[bytes] = encode_python_items(self._items)
        elif self._job.items.pattern == STANDARD_INPUT and self._stdin is not None:
            stream = self._stdin
            chunks = iter(lambda: stream.read(_PIECE_BYTES), b"")
        else:
            return
        self._spool = f"items-{launch}-{time.time_ns():x}.spool"
        if self._store.folder is not None:
            self._store.keep(self._spool, chunks)
            return
        with (self._folder / self._spool).open("wb") as file:
            file.writelines(chunks)

    @property
    def _folder(self) -> Path:
        """The run's folder; for a store without one, a scratch folder for this launch."""
        if self._store.folder is not None:
            return self._store.folder
        if self._scratch is None:
            import tempfile

            self._scratch = tempfile.TemporaryDirectory(prefix="agentrun-")
        return Path(self._scratch.name)

    # ---- working

    async def work(self, executor: Executor) -> dict[str, Any]:
        """Run the items, commit how they end, and finish the run where it is complete. Returns the summary."""
        run, job = self._run, self._job
        self._logs = ItemLogs(self._folder / "logs")
        self._files = ItemFiles(self._folder, self._disk)
        committer = Committer(self._store, snapshot=self._snapshot, landed=self._landed, has_thread=job.concurrency > 1)
        attempts = Attempts(
            executor,
            job,
            run=run,
            launch=run.launch + 1,
            commit=committer.commit,
            recall=lambda refs: committer.do(lambda: list(self._store.read(refs))),
            logs=self._logs,
            files=self._files,
            watcher=self._watcher,
            sleep=self._sleep,
        )
        slots = self._slots = Slots(run, attempts, committer, watcher=self._watcher, limit=self._options.limit)
        self._mail = Mail(run, self._store, committer, slots, watcher=self._watcher, note=self._note)
        if self._early_stop is not None:
            slots.stop(self._early_stop)
        meanwhile = [asyncio.ensure_future(self._trim_logs())]
        try:
            try:
                await self._begin(slots, committer)
                await executor.start()
                meanwhile.append(asyncio.ensure_future(self._mail.watch()))
                await self._run_all(slots, committer)
            finally:
                # With `running` empty: a clean stop, whatever the reason, as long as the disk still works.
                slots.close()
                if not committer.has_failed:
                    await committer.commit_bare()
        finally:
            for task in meanwhile:
                task.cancel()
            committer.close()
            self._logs.close(job.concurrency)
        return self._end(slots)

    async def _begin(self, slots: Slots, committer: Committer) -> None:
        """The launch's own first commit. Before it nothing is unlinked, told or started."""
        run, store = self._run, self._store
        context = run.checkpoint.context
        context |= {
            "identity": self._job.identity(),
            "agent": self._agent,
            "launches": context["launches"] + 1,
            "boot": boot_id(),
            "kept": self._kept,
            "gone": run.plan.gone,
        }
        if store.folder is not None:
            context["place"] = place_of(self._job, store.folder)
        if self._options.overwrite:
            context["overwrite"] = True
        if self._spool:
            context["spool"] = self._spool
        if self._abandoned is not None:
            # Its recent outputs were paid for too: to the journal, which is filed.
            self._abandoned.seq += 1
            store.commit(self._abandoned, flush=True)
            store.finish(summarise(self._abandoned, status="abandoned"))
        context |= {"budget": self._job.budget, "token_budget": self._job.token_budget}
        died_with = run.checkpoint.running
        run.purse.charge_left(died_with)
        is_quiet = not run.taken and not run.dead
        if is_quiet:
            self._open(slots)
        await committer.commit_bare()
        if self._job_json is not None:
            store.keep("job.json", [self._job_json])
        store.prune(keep=[self._spool] if self._spool else [])
        for path in (run.output, run.partial_output):
            discard_temporaries(self._disk, path)
        self._logs.adopt(died_with, f"launch {run.launch - 1}, when the runner died")
        self._note("restore" if run.resumed else "launch", run_id=run.run_id)
        for row, key in list(run.dead.items()):
            await committer.commit(Unit(row, -1, run.record_of_death(row, key)))
        await self._mail.commit(run.taken, are_counted=True)
        self._compact()
        self._files.sweep(self._is_done, run.output)
        if not is_quiet:
            self._open(slots)
            await committer.commit_bare()
        self._refresh_progress()
        self._watcher(Began(self.progress))

    def _compact(self) -> None:
        """A journal that is large and mostly garbage is written anew."""
        size, ledger = self._store.size(), self._run.ledger
        if size <= self._compact_over_bytes or not ledger.has_garbage:
            return
        refs = ledger.live_refs()
        if self._store.size(refs) * 2 <= size:
            ledger.move_refs(refs, self._store.compact(self._snapshot([]), refs))

    def _open(self, slots: Slots) -> None:
        slots.open(self._feed(), self._job.concurrency, again=self._feed_again)

    def _in_flight(self, row: int) -> bool:
        return self._slots is not None and row in self._slots.rows_in_flight

    def _feed_again(self, rows: set[int]) -> Iterator[Work]:
        """Those of `rows` that are still pending."""
        states = self._run.ledger.states
        wanted = {row for row in rows if states[row] == PENDING and not self._in_flight(row)}
        return islice(feed(self._source, self._run.ledger, wanted.__contains__), len(wanted))

    def _feed(self) -> Iterator[Work]:
        """Pending items, then those that failed in earlier launches. Suspects of a crash come later, alone."""
        assert self._slots is not None
        run, states, in_flight = self._run, self._run.ledger.states, self._slots.rows_in_flight
        suspects, dead = run.suspects, run.dead
        if run.is_held_up:
            return

        def is_pending(row: int) -> bool:
            return states[row] == PENDING and row not in in_flight and row not in suspects and row not in dead

        def is_to_retry(row: int) -> bool:
            if row in in_flight or row in suspects or row in dead:
                return False
            return row in run.to_retry and states[row] == FAILED

        if run.ledger.counts["pending"]:
            yield from feed(self._source, run.ledger, is_pending)
        if run.to_retry:
            yield from feed(self._source, run.ledger, is_to_retry)

    async def _run_all(self, slots: Slots, committer: Committer) -> None:
        run, ledger = self._run, self._run.ledger
        while True:
            settled_before = self._landed_units
            await self._run_round(slots)
            if run.suspects and slots.stop_reason is None and not slots.in_flight:
                slots.open(feed(self._source, ledger, run.suspects.__contains__), 1)
                await committer.commit_bare()
                await self._run_round(slots)
            if ledger.counts["pending"] and (slots.stop_reason is not None or run.is_held_up):
                return
            self._list_again()
            if slots.stop_reason is not None or not ledger.counts["pending"]:
                return
            if self._landed_units == settled_before:
                raise LaterError(f"{self._job.name}: the items change while they are read; go on when they are at rest")
            run.to_retry.clear()
            self._open(slots)
            await committer.commit_bare()

    async def _run_round(self, slots: Slots) -> None:
        """What is posted meanwhile is taken in; what comes after is for the next round, or the next launch."""
        self._mail.is_watched = True
        await slots.run()
        self._mail.is_watched = False
        await self._mail.take_in()

    def _list_again(self) -> None:
        """Before a run ends: what is new or changed by now is run too."""
        run, job = self._run, self._job
        # Answers and redo that came while this launch worked have made some pending again.
        known = run.ledger.counts["pending"]
        try:
            plan = list_items(self._source, run.ledger, tries_again=lambda row: False, keep_changed=job.keep_changed)
            check_plan(plan, self._source, accepted=run.plan.gone, allow_gone=self._options.allow_gone)
        except AgentrunError as error:
            raise LaterError(f"{error.message} (the items changed while this launch was running)") from None
        found = plan.run + plan.changed - known
        if job.carry and found + plan.moved:
            raise LaterError(f"{job.name}: items changed during this launch; go back to them with the same command")
        if found:
            self._watcher(Warned(f"new or changed since the launch began, and run now: {found}"))
        run.plan.gone = run.checkpoint.context["gone"] = plan.gone
        run.plan.contents_now = plan.contents_now
        self._refresh_progress()

    def _is_done(self, digest: bytes) -> bool:
        ledger = self._run.ledger
        row = ledger.find(digest)
        return row >= 0 and ledger.states[row] == DONE

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._logs.trim(self._job.concurrency)

    def request_stop(self, signal_number: int) -> None:
        """On a signal: no new items; those in flight have `grace` to finish. The second ends them at once."""
        self._signals += 1
        reason = StopReason(128 + signal_number, f"stopped by {_SIGNAL_NAMES.get(signal_number, signal_number)}")
        if self._slots is None:
            self._early_stop = reason
            return
        self._slots.stop(reason)
        if self._signals > 1:
            self._slots.cancel()
        else:
            asyncio.get_running_loop().call_later(self._job.grace_seconds, self._slots.cancel)

    # ---- committing

    def _snapshot(self, units: Sequence[Unit]) -> Checkpoint:
        """The checkpoint that includes these units, and names what their slots go on with."""
        assert self._slots is not None
        self._run.settle(units)
        for unit in units:
            kind = unit.entry.fields["kind"]
            if unit.slot is not None:
                self._slots.go_on(unit.slot)
            elif kind != "step" and not unit.is_counted:
                self._slots.rows_in_flight.discard(unit.row)
                if kind in ("answer", "redo"):
                    self._slots.offer(unit.row)
        self._slots.top_up()
        return self._run.next_checkpoint(self._slots.in_flight)

    def _landed(self, units: Sequence[Unit], refs: Sequence[int]) -> None:
        assert self._slots is not None
        for unit, ref in zip(units, refs, strict=True):
            self._run.landed(unit, ref)
            if unit.slot is None:
                continue
            self._slots.rows_in_flight.discard(unit.row)
            if unit.entry.fields["kind"] == "done" and "warning" not in unit.entry.fields:
                self._logs.forget(unit.entry.fields["key"])
            self.progress.settled_here += 1
        self._landed_units += len(units)
        self._slots.start()
        self._refresh_progress()

    def _refresh_progress(self) -> None:
        progress, counts = self.progress, self._run.ledger.counts
        progress.total, progress.to_run = len(self._run.ledger), self._run.plan.to_run
        progress.done, progress.failed = counts["done"], counts["failed"]
        progress.skipped, progress.waiting = counts["skipped"], counts["waiting"]
        progress.running = len(self._slots.in_flight) if self._slots else 0
        progress.cost = self._run.purse.usage.get("cost")

    # ---- ending

    def _end(self, slots: Slots) -> dict[str, Any]:
        """All is settled: finish the run. Otherwise write what there is beside it, and say how it stopped."""
        run, store, reason = self._run, self._store, slots.stop_reason
        if run.is_complete:
            run.checkpoint.context["completing"] = str(run.output)
            store.commit(self._snapshot([]), flush=True)
            summary = complete(run, store, self._disk)
            self._files.sweep(lambda digest: True)
            self._note("stop", reason="finished")
            return summary
        if reason is not None and reason.error is not None:
            self._note("stop", reason=reason.text)
            raise reason.error
        summary = cut_short(run, reason) if reason is not None else incomplete(run, store, self._disk)
        self._note("stop", reason=summary["reason"])
        return summary

    def _note(self, event: str, **details: Any) -> None:
        checkpoint = self._run.checkpoint
        self._store.note(
            {
                "at": now_text(),
                "event": event,
                "launch": checkpoint.context["launches"],
                "last_completed": checkpoint.last_completed,
                **details,
            }
        )

    def close(self) -> None:
        self._store.release()
        if self._scratch is not None:
            self._scratch.cleanup()

"""Preparing a launch: read what is there, and make the plan. The run that is found does not change."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.summary import Summary, checkpoint_after, first_checkpoint, last_finished, next_number
from agentrun.errors import CheckpointError, ItemsError, LaterError, PlanError
from agentrun.events import Planned, Warned, Watcher
from agentrun.items.open import Source, encode_python_items
from agentrun.job.job import STANDARD_INPUT, Job
from agentrun.job.options import Options
from agentrun.launch.pricing import check_price
from agentrun.outputs.claim import Claim
from agentrun.outputs.output import Output, open_output
from agentrun.outputs.place import make_output_folder
from agentrun.outputs.results import done_results
from agentrun.outputs.workspace import Workspace
from agentrun.runs.intake import Kept
from agentrun.runs.places import (
    Place,
    bring_here,
    brought_here,
    check_files_here,
    check_same_place,
    is_from_elsewhere,
    place_of,
)
from agentrun.runs.recovery import check_item_files, check_run_output, has_messages, open_items, recover, run_output
from agentrun.runs.reuse import as_kept, is_as_finished, open_run
from agentrun.runs.run import Run
from agentrun.store.moving import moved_note
from agentrun.store.port import Reader, Store
from agentrun.system.disk import Disk
from agentrun.values.clock import now_seconds, seconds_of, seconds_until
from agentrun.values.until import moment_words

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is planned, with nothing on disk changed yet."""

    run: Run
    source: Source
    spool: str | None = None
    """The name under which items from outside are kept."""
    abandoned: Checkpoint | None = None
    """The unfinished run that --fresh gives up."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """`begin` is called with the lock held."""

    job: Job
    store: Store
    workspace: Workspace
    agent: str
    """The agent's fingerprint."""
    options: Options
    watcher: Watcher
    claim: Claim
    items: Iterable[Any] | None = None
    """Items given in Python."""
    stdin: BinaryIO | None = None
    disk: Disk = field(default_factory=Disk)
    notes: tuple[str, ...] = ()
    """What the plan says of this launch, besides what it says of the run."""

    def begin(self) -> Prepared | Summary:
        """What to run; a summary if there is nothing to do."""
        try:
            found = self._load()
        except CheckpointError as error:
            if not self.options.fresh:
                raise
            self.watcher(Warned(f"{error.message}; it is kept as {self.store.set_aside()}"))
            found = None
        if found is not None and not self.options.fresh:
            check_time(self.job, found, self.options)
            return self._plan(found)
        ended = self.store.summaries()
        if self.options.fresh:
            self._check_fresh(found, ended)
        finished = last_finished(ended) if not self.options.fresh else None
        if finished is not None and self.options.adopt:
            finished = brought_here(finished, self.job, self._place)
        if self.options.resume and not has_messages(finished, self.store.inbox()):
            return last_run(self.job, ended)
        if finished is not None:
            return self._continue(finished, next_number(ended, found))
        return self._plan(new_series(self.job, ended, found), abandoned=found)

    def _check_fresh(self, found: Checkpoint | None, ended: Sequence[Summary]) -> None:
        """In a shared store nobody starts over what belongs to somebody else."""
        place = self._place
        if place is not None and place.is_shared:
            was = found.context.place if found is not None else ended[0].place if ended else ""
            which = "an unfinished run" if found is not None else "the last run"
            check_same_place(self.job, place, was, which, self.options)

    @property
    def _place(self) -> Place | None:
        return place_of(self.job, self.store)

    def _load(self) -> Checkpoint | None:
        loaded = self.store.load(accept_edits=self.options.accept_edits)
        if loaded.finished is None:
            return loaded.checkpoint
        # The last launch died between filing the summary and clearing the state.
        self.store.finish(loaded.finished)
        self.store.prune()
        if loaded.finished.is_finished:
            self.watcher(Warned("the run was finished already; its state is cleared now"))
        return None

    def _plan(self, checkpoint: Checkpoint, *, abandoned: Checkpoint | None = None) -> Prepared:
        """For a run that is resumed, or begins a series."""
        was, is_elsewhere = checkpoint.context.place, is_from_elsewhere(self._place, checkpoint.context.place)
        if self.options.adopt:
            bring_here(checkpoint, self.job, self._place)
        else:
            check_same_place(self.job, self._place, was, "an unfinished run", self.options)
        self._check_output(checkpoint)
        prepared = replace(self._recover(checkpoint, self.store), abandoned=abandoned)
        if is_elsewhere:
            check_files_here(prepared.run, self.store, was)
        check_price(self.job, prepared.run.plan)
        check_item_files(prepared.run, prepared.source, self._output(checkpoint))
        self._announce(prepared.run)
        return prepared

    def _continue(self, finished: Summary, number: int) -> Prepared | Summary:
        """For a new run that keeps the results of the last one; a summary if nothing would change."""
        checkpoint = checkpoint_after(finished, number=number)
        with self.store.reader(run_id=finished.run_id) as reader:
            prepared = self._recover(checkpoint, reader, finished)
            run = prepared.run
            if is_as_finished(run, finished):
                return self._keep_all(run, reader, finished)
            check_price(self.job, run.plan)
            self._check_output(checkpoint)
            check_item_files(run, prepared.source, self._output(checkpoint))
            self._announce(run)
            open_run(run, reader, self.store)
        return prepared

    def _keep_all(self, run: Run, reader: Reader, finished: Summary) -> Summary:
        self.store.drop(one.name for one in run.taken)
        # Perhaps the same items were spooled once more.
        self.store.prune()
        output = open_output(self.job, self.store, run_id=finished.run_id, date=finished.date)
        if output.is_missing():
            output.check(ended=(), is_own=True)
            make_output_folder(output.path.parent, output.path, base=self.job.base, disk=self.disk)
            self.claim.take(output.path, finished.run_id, is_folder=output.form == "folder")
            output.restore(lambda: done_results(run.ledger, reader), self.disk, self.claim.check)
            self.claim.release()
        return as_kept(run, finished)

    def _check_output(self, checkpoint: Checkpoint) -> None:
        """Whether the results can be written, and may be; from here on the output is this run's."""
        output = self._output(checkpoint)
        check_run_output(output, checkpoint, ended=self.store.summaries(), options=self.options)
        make_output_folder(output.path.parent, output.path, base=self.job.base, disk=self.disk)
        self.claim.take(output.path, checkpoint.run_id, is_folder=output.form == "folder")

    def _output(self, checkpoint: Checkpoint) -> Output:
        return run_output(self.job, self.store, checkpoint, options=self.options)

    def _recover(self, checkpoint: Checkpoint, kept: Kept, finished: Summary | None = None) -> Prepared:
        job, context = self.job, checkpoint.context
        spool = self._spool_items(launch=context.launches + 1) or context.spool
        source = open_items(
            job,
            checkpoint,
            ended=self.store.summaries(),
            folder=self.workspace.folder,
            spool=self.workspace.spool(spool) if spool else None,
        )
        if source is None:
            raise ItemsError(f"{job.name}: its items came from outside, and are not kept; give them again")
        run = recover(
            kept,
            job,
            source,
            checkpoint,
            agent=self.agent,
            options=self.options,
            finished=finished,
            place=self._place,
        )
        return Prepared(run, source, spool)

    def _announce(self, run: Run) -> None:
        context, ended = run.context, self.store.summaries()
        is_first = not run.resumed and not context.from_run
        self.watcher(
            Planned(
                job=self.job,
                plan=run.plan,
                run_id=run.run_id,
                launch=context.launches + 1,
                output=run.output,
                resumed=not is_first,
                last=ended[0] if is_first and ended else None,
                notes=(*move_notes(self.store, self.options), *run.notes, *self.notes),
                from_run=context.from_run if not context.launches else "",
            )
        )

    def _spool_items(self, *, launch: int) -> str | None:
        """Keep standard input and Python items with the run, under a name that is new."""
        if self.items is not None:
            chunks: Iterable[bytes] = encode_python_items(self.items)
        elif self.job.items.pattern == STANDARD_INPUT and self.stdin is not None:
            stream = self.stdin
            chunks = iter(lambda: stream.read(_PIECE_BYTES), b"")
        else:
            return None
        name = f"items-{launch}-{time.time_ns():x}.spool"
        self.store.keep(name, chunks)
        return name


def new_series(job: Job, ended: Iterable[Summary], abandoned: Checkpoint | None) -> Checkpoint:
    """The checkpoint of a run that begins a series, and gives up the unfinished run `abandoned`."""
    checkpoint = first_checkpoint(job, number=next_number(ended, abandoned))
    # Items from outside need not be given again.
    before = abandoned.context if abandoned is not None else last_finished(ended)
    checkpoint.context.spool = before.spool if before is not None else None
    return checkpoint


def move_notes(store: Store, options: Options) -> tuple[str, ...]:
    """What --fresh says about a job that was moved away. Only --fresh starts such a job."""
    note = moved_note(store) if options.fresh else ""
    return (note,) if note else ()


def check_time(job: Job, found: Checkpoint, options: Options) -> None:
    """Not before the time at which the last launch was told to come back: a request would only be refused."""
    until, reason = "", ""
    if found.stopped is not None:
        until, reason = found.stopped.resume_at, found.stopped.waits_for or found.stopped.reason
    elif found.paused is not None and not found.paused.probes:
        until, reason = found.paused.until, found.paused.reason
    if not options.now and seconds_until(until):
        when = moment_words(seconds_of(until), now_seconds())
        raise LaterError(f"{job.name}: not before {when}: {reason}; --now tries at once")


def nothing_to_resume(job: Job, reader: Reader) -> Summary | None:
    """Known without the lock, and without loading the agent: the last run, if none is unfinished and nothing was
    posted about it. PlanError if the job never ran."""
    if reader.checkpoint is not None or has_messages(last_finished(reader.summaries), reader.inbox()):
        return None
    return last_run(job, reader.summaries)


def last_run(job: Job, ended: Iterable[Summary]) -> Summary:
    """How the newest run ended, for a launch with nothing to do."""
    newest = next(iter(ended), None)
    if newest is None:
        raise PlanError(f"{job.name}: has no run to resume; start one with: agentrun start {job.name}")
    return structs.replace(newest, exit_code=0, nothing_to_do=True)

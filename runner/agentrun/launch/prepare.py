"""Preparing a launch: read what is there, and make the plan. Nothing that was on disk changes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.summary import Summary, first_checkpoint
from agentrun.errors import CheckpointError, ItemsError, PlanError
from agentrun.events import Planned, Warned, Watcher
from agentrun.items.open import Source, encode_python_items
from agentrun.job.job import STANDARD_INPUT, Job
from agentrun.job.options import Options
from agentrun.outputs.workspace import Workspace
from agentrun.runs.recovery import check_run_output, open_items, recover, run_to_reopen
from agentrun.runs.run import Run
from agentrun.store.port import Reader, Store

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
    items: Iterable[Any] | None = None
    """Items given in Python."""
    stdin: BinaryIO | None = None

    def begin(self) -> Prepared | Summary:
        """What to run; a summary if there is nothing to do."""
        try:
            found = self._load()
        except CheckpointError as error:
            if not self.options.fresh:
                raise
            self.watcher(Warned(f"{error.message}; it is kept as {self.store.set_aside()}"))
            found = None
        if not self.options.fresh and not isinstance(found, Checkpoint):
            found = self._reopen() or found
        if isinstance(found, Summary):
            return found
        if found is None and self.options.resume:
            return last_run(self.job, self.store.summaries())
        if found is not None and self.options.fresh:
            return self._plan(first_checkpoint(self.job), resumed=False, abandoned=found)
        return self._plan(found or first_checkpoint(self.job), resumed=found is not None)

    def _load(self) -> Checkpoint | Summary | None:
        loaded = self.store.load(accept_edits=self.options.accept_edits)
        if loaded.finished is None:
            return loaded.checkpoint
        # The last launch died between filing the summary and clearing the state.
        self.store.finish(loaded.finished)
        self.store.prune()
        if not loaded.finished.is_finished:
            return None
        self.watcher(Warned("the run was finished already; its state is cleared now"))
        return structs.replace(loaded.finished, exit_code=0, nothing_to_do=True)

    def _reopen(self) -> Checkpoint | None:
        """What people posted about the finished run opens a new one, which begins with its records."""
        run_id = run_to_reopen(self.store.summaries(), self.store.inbox())
        checkpoint = self.store.reopen(run_id) if run_id else None
        if run_id and checkpoint is None:
            self.watcher(Warned("what was posted about the last run cannot be done: its records are no longer kept"))
        return checkpoint

    def _plan(self, checkpoint: Checkpoint, *, resumed: bool, abandoned: Checkpoint | None = None) -> Prepared:
        job, context, ended = self.job, checkpoint.context, self.store.summaries()
        check_run_output(job, checkpoint, ended=ended, options=self.options)
        spool = self._spool_items(launch=context.launches + 1) or context.spool
        source = open_items(
            job,
            checkpoint,
            ended=ended,
            folder=self.workspace.folder,
            spool=self.workspace.spool(spool) if spool else None,
        )
        if source is None:
            raise ItemsError(f"{job.name}: its items came from outside, and are not kept; give them again")
        run = recover(
            self.store,
            job,
            source,
            checkpoint,
            resumed=resumed,
            agent=self.agent,
            options=self.options,
            folder=self.store.folder,
        )
        self.watcher(
            Planned(
                job=job,
                plan=run.plan,
                run_id=checkpoint.run_id,
                launch=context.launches + 1,
                output=run.output,
                resumed=resumed,
                last=None if resumed or not ended else ended[0],
                notes=tuple(run.notes),
                from_run=context.from_run if not context.launches else "",
            )
        )
        return Prepared(run, source, spool, abandoned)

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


def nothing_to_resume(job: Job, reader: Reader) -> Summary | None:
    """Known without the lock, and without loading the agent: the last run, if none is unfinished and nothing was
    posted about it. PlanError if the job never ran."""
    if reader.checkpoint is not None or run_to_reopen(reader.summaries, reader.inbox()):
        return None
    return last_run(job, reader.summaries)


def last_run(job: Job, ended: Iterable[Summary]) -> Summary:
    """How the newest run ended, for a launch with nothing to do."""
    newest = next(iter(ended), None)
    if newest is None:
        raise PlanError(f"{job.name}: has no run to resume; start one with: agentrun start {job.name}")
    return structs.replace(newest, exit_code=0, nothing_to_do=True)

"""Planning: what a launch would do, worked out without its lock and without changing anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.checkpoint.summary import new_checkpoint
from agentrun.errors import AgentrunError, CheckpointError
from agentrun.events import Planned
from agentrun.job.options import Options
from agentrun.runs.plan import Plan
from agentrun.runs.recovery import check_plan, check_run_output, open_items, recover
from agentrun.store.folder.store import FolderStore

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.job.job import Job


READ_AGAIN = 20


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a launch would do now. `refusal` is what it would say no to; `first` is the first item, if it is known."""

    planned: Planned
    first: Item | None
    refusal: str


def plan_launch(job: Job, folder: Path, *, agent: str, options: Options) -> Prospect:
    """The plan of a launch that is not begun. A runner may be at work meanwhile."""
    for _ in range(READ_AGAIN):
        before = _stamp(folder)
        try:
            return _plan(job, FolderStore(folder), agent, options)
        except CheckpointError:
            # A runner at work may have moved the journal between two reads.
            if _stamp(folder) == before:
                raise
    return _plan(job, FolderStore(folder), agent, options)


def _stamp(folder: Path) -> tuple[int, int] | None:
    try:
        found = (folder / "state.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _plan(job: Job, store: FolderStore, agent: str, options: Options) -> Prospect:
    loaded = store.load(accept_edits=options.accept_edits)
    found = None if options.fresh or loaded.finished is not None else loaded.checkpoint
    checkpoint = found or replace(new_checkpoint(job), run_id="{run_id}")
    context, ended = checkpoint.context, store.summaries()
    refusals: list[str] = []
    try:
        check_run_output(job, checkpoint, ended=ended, options=options)
    except AgentrunError as error:
        refusals.append(error.message)
    plan, item = Plan(), None
    notes: tuple[str, ...] = ()
    source = open_items(job, store.folder, checkpoint, ended=ended, spool=context.get("spool"))
    if source is not None:
        # As if all that is gone were allowed, so that there is a plan to show.
        bold = replace(options, allow_gone=True)
        run = recover(store, job, source, checkpoint, resumed=found is not None, agent=agent, options=bold)
        plan, notes = run.plan, tuple(run.notes)
        try:
            check_plan(plan, source, accepted=context.get("gone", 0), allow_gone=options.allow_gone)
        except AgentrunError as error:
            refusals.append(error.message)
        item = next((source.item(raw, 0, plan.first_keys[0]) for raw in source), None)
    planned = Planned(
        job=job,
        plan=plan,
        run_id=checkpoint.run_id,
        launch=context["launches"] + 1,
        output=job.output_path(run_id=checkpoint.run_id, date=context["date"]),
        resumed=found is not None,
        last=ended[0] if ended and found is None else None,
        notes=notes,
    )
    return Prospect(planned, item, refusals[0] if refusals else "")

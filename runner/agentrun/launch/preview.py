"""The preview of a launch: what it would do, worked out without the lock and without changing anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from agentrun.checkpoint.summary import first_checkpoint
from agentrun.errors import AgentrunError
from agentrun.events import Planned
from agentrun.outputs.workspace import Workspace
from agentrun.runs.plan import Plan
from agentrun.runs.recovery import check_plan, check_run_output, open_items, recover
from agentrun.store.port import Reader, Store

if TYPE_CHECKING:
    from agentrun.item import Item
    from agentrun.job.job import Job
    from agentrun.job.options import Options


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a launch would do now. `refusal` is what it would refuse; `first` is the first item, if it is known."""

    planned: Planned
    first: Item | None
    refusal: str


def plan_launch(job: Job, store: Store, *, agent: str, options: Options) -> Prospect:
    """The plan of a launch that is not started. A runner may be at work meanwhile."""
    with store.reader(accept_edits=options.accept_edits) as reader:
        return _plan(job, store, reader, agent, options)


def _plan(job: Job, store: Store, reader: Reader, agent: str, options: Options) -> Prospect:
    found = None if options.fresh else reader.checkpoint
    checkpoint = found or structs.replace(first_checkpoint(job), run_id="{run_id}")
    context, ended = checkpoint.context, reader.summaries
    refusals: list[str] = []
    try:
        check_run_output(job, checkpoint, ended=ended, options=options)
    except AgentrunError as error:
        refusals.append(error.message)
    plan, item = Plan(), None
    notes: tuple[str, ...] = ()
    spool = Workspace(store).spool(context.spool) if context.spool else None
    source = open_items(job, checkpoint, ended=ended, folder=store.folder, spool=spool)
    if source is not None:
        # As if everything that is gone were allowed, so that there is a plan to show.
        bold, is_resumed = replace(options, allow_gone=True), found is not None
        folder = store.folder
        run = recover(reader, job, source, checkpoint, resumed=is_resumed, agent=agent, options=bold, folder=folder)
        plan, notes = run.plan, tuple(run.notes)
        try:
            check_plan(plan, source, accepted=context.gone, allow_gone=options.allow_gone)
        except AgentrunError as error:
            refusals.append(error.message)
        item = next((source.item(raw, 0, plan.first_keys[0]) for raw in source), None)
    planned = Planned(
        job=job,
        plan=plan,
        run_id=checkpoint.run_id,
        launch=context.launches + 1,
        output=job.output_path(run_id=checkpoint.run_id, date=context.date),
        resumed=found is not None,
        last=ended[0] if ended and found is None else None,
        notes=notes,
    )
    return Prospect(planned, item, refusals[0] if refusals else "")

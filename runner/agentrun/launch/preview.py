"""The preview of a launch: what it would do, worked out without the lock and without changing anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from agentrun.checkpoint.summary import Summary, checkpoint_after, first_checkpoint, last_finished, next_number
from agentrun.errors import AgentrunError
from agentrun.events import Planned
from agentrun.outputs.claim import Claim
from agentrun.outputs.workspace import Workspace
from agentrun.runs.plan import Plan
from agentrun.runs.recovery import check_item_files, check_plan, check_run_output, open_items, recover, run_output
from agentrun.runs.reuse import is_as_finished
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
    is_nothing: bool = False
    """Whether it would only say that everything is kept."""


def plan_launch(job: Job, store: Store, *, agent: str, options: Options) -> Prospect:
    """The plan of a launch that is not started. A runner may be at work meanwhile."""
    with store.reader(accept_edits=options.accept_edits) as reader:
        finished = last_finished(reader.summaries)
        if options.fresh or reader.checkpoint is not None or finished is None:
            return _plan(job, store, reader, agent, options)
    with store.reader(run_id=finished.run_id) as reader:
        return _plan(job, store, reader, agent, options, finished)


def _plan(
    job: Job, store: Store, reader: Reader, agent: str, options: Options, finished: Summary | None = None
) -> Prospect:
    found = reader.checkpoint if not options.fresh else None
    number = next_number(reader.summaries, reader.checkpoint)
    new = checkpoint_after(finished, number=number) if finished is not None else first_checkpoint(job, number=number)
    checkpoint = found or structs.replace(new, run_id="{run_id}")
    context, ended = checkpoint.context, reader.summaries
    refusals: list[str] = []
    output = run_output(job, store, checkpoint, options=options)
    try:
        check_run_output(output, checkpoint, ended=ended, options=options)
        Claim(job.name, store.folder).look(output.path)
    except AgentrunError as error:
        refusals.append(error.message)
    plan, item, is_nothing = Plan(), None, False
    notes: tuple[str, ...] = ()
    spool = Workspace(store).spool(context.spool) if context.spool else None
    source = open_items(job, checkpoint, ended=ended, folder=store.folder, spool=spool)
    if source is not None:
        # As if everything that is gone were allowed, so that there is a plan to show.
        bold, folder = replace(options, allow_gone=True), store.folder
        run = recover(reader, job, source, checkpoint, agent=agent, options=bold, finished=finished, folder=folder)
        is_nothing = finished is not None and is_as_finished(run, finished)
        try:
            check_plan(run.plan, source, accepted=context.gone, options=options, is_new_run=found is None)
            check_item_files(run, source, output)
        except AgentrunError as error:
            refusals.append(error.message)
        plan, notes = run.plan, tuple(run.notes)
        item = next((source.item(raw, 0, plan.first_keys[0]) for raw in source), None)
    planned = Planned(
        job=job,
        plan=plan,
        run_id=checkpoint.run_id,
        launch=context.launches + 1,
        output=output.path,
        resumed=found is not None or finished is not None,
        last=ended[0] if ended and found is None and finished is None else None,
        notes=notes,
        from_run=context.from_run if not context.launches else "",
    )
    return Prospect(planned, item, refusals[0] if refusals and not is_nothing else "", is_nothing)

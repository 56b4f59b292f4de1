"""The preview of a launch: what it would do, worked out without the lock and without changing anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, checkpoint_after, last_finished, next_number
from agentrun.errors import AgentrunError, CheckpointError
from agentrun.events import Planned
from agentrun.launch.prepare import move_notes, new_series
from agentrun.launch.pricing import check_price
from agentrun.outputs.claim import Claim
from agentrun.outputs.output import Output
from agentrun.outputs.workspace import Workspace
from agentrun.runs.intake import Kept
from agentrun.runs.places import bring_here, brought_here, place_of
from agentrun.runs.plan import Plan
from agentrun.runs.recovery import check_item_files, check_plan, check_run_output, open_items, recover, run_output
from agentrun.runs.reuse import as_kept, is_as_finished
from agentrun.store.moving import check_not_moved
from agentrun.store.port import Posted, Store

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
    nothing: Summary | None = None
    """What it would return at once, if everything is kept."""

    @property
    def is_nothing(self) -> bool:
        return self.nothing is not None


def plan_launch(job: Job, store: Store, *, agent: str, options: Options) -> Prospect:
    """The plan of a launch that is not started. A runner may be at work meanwhile.

    UsageError, as from the launch, if the job was moved away.
    """
    check_not_moved(store, job.name, fresh=options.fresh)
    try:
        with store.reader(accept_edits=options.accept_edits) as reader:
            found, ended = reader.checkpoint, reader.summaries
            if found is not None and not options.fresh:
                if options.adopt:
                    bring_here(found, job, place_of(job, store))
                return _Preview(job, store, agent, options, ended).of(reader, found)
    except CheckpointError:
        if not options.fresh:
            raise
        # The launch would put that state aside.
        found, ended = None, store.summaries()
    preview = _Preview(job, store, agent, options, ended)
    finished = last_finished(ended) if not options.fresh else None
    if finished is not None and options.adopt:
        finished = brought_here(finished, job, place_of(job, store))
    if finished is None:
        return preview.of(_NoRecords(), new_series(job, ended, found))
    with store.reader(run_id=finished.run_id) as reader:
        return preview.of(reader, checkpoint_after(finished, number=next_number(ended, found)), finished)


class _NoRecords:
    """What a run begins with that keeps nothing."""

    def scan(self) -> Iterator[tuple[int, Record]]:
        return iter(())

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return iter(())

    def inbox(self) -> list[Posted]:
        return []


@dataclass(frozen=True, slots=True)
class _Preview:
    job: Job
    store: Store
    agent: str
    options: Options
    ended: Sequence[Summary]

    def of(self, kept: Kept, checkpoint: Checkpoint, finished: Summary | None = None) -> Prospect:
        """For the unfinished run, or a new one, which has no id yet; `kept` are the records that it begins with."""
        job, store, context = self.job, self.store, checkpoint.context
        is_new = not checkpoint.seq
        if is_new:
            checkpoint = structs.replace(checkpoint, run_id="{run_id}")
        output = run_output(job, store, checkpoint, options=self.options)
        refusals = self._refusals_of_output(output, checkpoint)
        plan, item, nothing = Plan(), None, None
        notes: tuple[str, ...] = ()
        spool = Workspace(store).spool(context.spool) if context.spool else None
        source = open_items(job, checkpoint, ended=self.ended, folder=store.folder, spool=spool)
        if source is not None:
            # As if everything that is gone were allowed, so that there is a plan to show.
            options = replace(self.options, allow_gone=True)
            run = recover(
                kept,
                job,
                source,
                checkpoint,
                agent=self.agent,
                options=options,
                finished=finished,
                place=place_of(job, store),
            )
            if finished is not None and is_as_finished(run, finished):
                nothing = as_kept(run, finished)
            try:
                check_price(job, run.plan)
                check_plan(run.plan, source, accepted=context.gone, options=self.options, is_new_run=is_new)
                check_item_files(run, source, output)
            except AgentrunError as error:
                refusals.append(error.message)
            plan, notes = run.plan, tuple(run.notes)
            item = next((source.item(raw, 0, plan.first_keys[0]) for raw in source), None)
        is_first = is_new and finished is None
        planned = Planned(
            job=job,
            plan=plan,
            run_id=checkpoint.run_id,
            launch=context.launches + 1,
            output=output.path,
            resumed=not is_first,
            last=self.ended[0] if is_first and self.ended else None,
            notes=(*move_notes(store, self.options), *notes),
            from_run=context.from_run if not context.launches else "",
        )
        return Prospect(planned, item, refusals[0] if refusals and nothing is None else "", nothing)

    def _refusals_of_output(self, output: Output, checkpoint: Checkpoint) -> list[str]:
        try:
            check_run_output(output, checkpoint, ended=self.ended, options=self.options)
            Claim(self.job.name, self.store.folder).look(output.path)
        except AgentrunError as error:
            return [error.message]
        return []

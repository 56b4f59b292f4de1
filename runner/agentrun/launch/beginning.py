"""How a launch begins: what its checkpoints say of it, and what it puts in order after its first commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentrun.checkpoint.ledger import DONE
from agentrun.errors import LaterError
from agentrun.job.options import Options
from agentrun.launch.committer import Checkpointing
from agentrun.launch.slots import Slots
from agentrun.outputs.files import ItemFiles, files_folder
from agentrun.runs.books import superseded
from agentrun.runs.places import place_of
from agentrun.runs.run import Run
from agentrun.runs.units import Unit
from agentrun.store.port import Store
from agentrun.system.process import boot_id


def update_context(run: Run, store: Store, options: Options, *, spool: str | None) -> None:
    """What the checkpoints of this launch say of it."""
    run.checkpoint.stopped = run.checkpoint.paused = None
    context, job = run.context, run.job
    if run.resumed and not context.files_from:
        context.files_from = context.output
    if context.files_from and files_folder(Path(context.files_from)) == files_folder(run.output):
        context.files_from = ""
    context.identity, context.agent, context.boot = job.identity(), run.agent, boot_id()
    context.launches += 1
    # A new run has no records of items that are gone.
    context.gone = run.plan.gone if run.resumed else 0
    context.others = run.only.left_out(run.ledger) if run.only is not None else 0
    context.budget, context.token_budget = job.budget, job.token_budget
    if (place := place_of(job, store)) is not None:
        context.place, context.base = place.text, str(job.base)
    context.overwrite = context.overwrite or options.overwrite
    context.estimated = context.estimated or options.accept_edits
    context.spool, context.output = spool, str(run.output)


async def carry_files(run: Run, store: Store, files: ItemFiles, checkpointing: Checkpointing) -> None:
    """The files of results that were made for another output come along; each is durable before its record is."""
    ledger = run.ledger
    if not run.context.files_from:
        return
    before = Path(run.context.files_from)
    old, new = files_folder(before).name, files_folder(run.output).name
    for row in [row for row in sorted(ledger.with_files) if ledger.states[row] == DONE]:
        (record,) = store.read([ledger.refs[row]])
        if old != new and record.files[0].path.startswith(f"{new}/"):
            continue  # by a launch that died here
        found = await asyncio.to_thread(files.carry_over, record.files, before, run.output, record.key)
        if found is None:
            raise LaterError(f"{run.job.name}: the files of {record.key} were changed; run the same command again")
        await checkpointing.commit(Unit(row, None, run.replaced(record, files=found)))
    run.context.files_from = ""
    await checkpointing.commit()


def compact(run: Run, store: Store, slots: Slots, *, over_bytes: int) -> None:
    """Rewrite a journal that is large and mostly garbage."""
    size, ledger = store.size(), run.ledger
    if size <= over_bytes or not ledger.has_garbage:
        return
    refs = ledger.live_refs()
    if store.size(refs) * 2 <= size:
        # What the records that are dropped have used was paid all the same.
        for used in superseded(run, store):
            run.purse.set_aside(used)
        ledger.move_refs(refs, store.compact(run.next_checkpoint(slots.in_flight), refs))

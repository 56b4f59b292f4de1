"""What can be known of a launch without its agent, whose import may take long."""

from __future__ import annotations

from agentrun.checkpoint.summary import first_checkpoint, last_finished
from agentrun.errors import CheckpointError, ItemsError
from agentrun.job.job import Job
from agentrun.job.options import Options
from agentrun.outputs.place import check_output_folder
from agentrun.outputs.workspace import Workspace
from agentrun.runs.recovery import check_same_job, check_same_task, open_items
from agentrun.store.port import Reader, Store


def check_before_import(job: Job, store: Store, options: Options) -> None:
    """Refuse what the launch would refuse anyway: another job under its name, a place where no results can be written,
    no items. Takes no lock and changes nothing, so whatever may change meanwhile is left to the launch."""
    if job.agent is None:
        return  # programs and prompts are ready at once
    try:
        with store.reader(accept_edits=options.accept_edits) as reader:
            _check(job, store, reader, options)
    except CheckpointError:
        return  # the launch says what to do


def _check(job: Job, store: Store, reader: Reader, options: Options) -> None:
    found, finished = reader.checkpoint, last_finished(reader.summaries)
    if options.fresh:
        found = finished = None
    if found is not None:
        check_same_job(job, found.context.identity, "an unfinished run")
    elif finished is not None:
        check_same_task(job, finished)
    checkpoint = found or first_checkpoint(job, number=1)
    output = job.output_path(run_id=checkpoint.run_id, date=checkpoint.context.date)
    check_output_folder(output.parent, output)
    spool = Workspace(store).spool(checkpoint.context.spool) if checkpoint.context.spool else None
    source = open_items(job, checkpoint, ended=reader.summaries, folder=store.folder, spool=spool)
    if source is not None and next(iter(source), None) is None:
        raise ItemsError(f"{source.describe()}; there is nothing to run")

"""Where a job is, as its state remembers it: a job of the same name in another place is another job."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.ledger import DONE
from agentrun.checkpoint.summary import Summary
from agentrun.errors import PlanError
from agentrun.job.home import shared_place
from agentrun.job.job import Job
from agentrun.job.options import Options
from agentrun.outputs.files import differing_files, files_folder
from agentrun.runs.intake import Kept
from agentrun.runs.run import Run
from agentrun.store.port import Store


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job is."""

    text: str
    """As seen from the state, so that it is the same when both are moved together; in a shared store with the host."""
    is_shared: bool = False
    """Whether jobs of other machines are in the same store."""


def place_of(job: Job, store: Store) -> Place | None:
    """Where the job is, as seen from its state; None for a store that is nowhere."""
    if store.where:
        return Place(shared_place(job.base), is_shared=True)
    if store.folder is None:
        return None
    home = store.folder.parent.parent
    return Place(str(job.base.relative_to(home)) if job.base.is_relative_to(home) else str(job.base))


def is_from_elsewhere(place: Place | None, was: str) -> bool:
    """Whether the last launch was in another place."""
    return place is not None and bool(was) and was != place.text


def bring_here(checkpoint: Checkpoint, job: Job, place: Place | None) -> None:
    """For a run that another place has worked on: its paths, as this place has them."""
    context = checkpoint.context
    if place is not None and place.is_shared and is_from_elsewhere(place, context.place):
        context.output = _here(context.output, context.place, job)
        context.files_from = _here(context.files_from, context.place, job)
        # What lies at that path here was not written by this run.
        context.completing = ""


def brought_here(finished: Summary, job: Job, place: Place | None) -> Summary:
    """The same for the summary of a run that ended."""
    if place is None or not place.is_shared or finished.output is None or not is_from_elsewhere(place, finished.place):
        return finished
    output = structs.replace(finished.output, path=_here(finished.output.path, finished.place, job))
    return structs.replace(finished, output=output)


def _here(path: str, was: str, job: Job) -> str:
    """A path in the job's folder there is one in its folder here; any other may be shared by both."""
    base = was.partition(":")[2]
    if not path or not base or not Path(path).is_relative_to(base):
        return path
    return str(job.base / Path(path).relative_to(base))


def check_files_here(run: Run, kept: Kept, was: str) -> None:
    """The files that items of an adopted run published lie on the machine that ran them: they must have come along."""
    rows = [row for row in sorted(run.ledger.with_files) if run.ledger.states[row] == DONE]
    folder = run.output.parent
    for record in kept.read(run.ledger.refs[row] for row in rows):
        if (wrong := next(differing_files(folder, record.files), None)) is not None:
            raise PlanError(
                f"{run.job.name}: {record.key} published {wrong[0].path}, which is not in {folder}; copy "
                f"{files_folder(run.output).name} there from {was}, or run the item again with: "
                f"agentrun redo {run.job.name} {shlex.quote(record.key)}"
            )


def check_same_place(job: Job, place: Place | None, was: str, which: str, options: Options) -> None:
    """With one state folder, or one store, for many places, a job of the same name elsewhere is another job."""
    if place is None or not is_from_elsewhere(place, was) or (place.is_shared and options.adopt):
        return
    belongs = f"{job.name}: {which} of this name belongs to {was}, but this job is in {place.text}"
    if place.is_shared:
        verb, fresh = "resume" if options.resume else "start", " --fresh" if options.fresh else ""
        command = f"agentrun {verb} {shlex.quote(job.name)}{fresh} --adopt"
        raise PlanError(
            f"{belongs}; if it is the same job, take it over with: {command}; if not, give this job another name"
        )
    raise PlanError(f"{belongs}; give this job another name with --name, or start over with --fresh")

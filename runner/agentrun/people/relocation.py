"""A job in another place than the one it was exported from: which of its paths are others there. Does no I/O.

What a run knows of places, and what a launch does with each:

- `context.output`, and `output` of a summary: the files that items published are beside it. A launch whose output is
  another one copies them from there, so this must be where they were unpacked.
- `context.completing`: what lies at this path is ours. Nothing of ours lies there yet.
- `context.place`, and `place` of a summary: a launch in another place is refused. Here the first one decides.
- `context.base`: where the folder was before. It stays, so that a start under another name is told.
- `files_from`: where files are still to be copied from, like `output`.
- job.json: the path of the job file, or the job's folder.
- the list of the files in an output that is a folder: its name is made from the path as seen from the state folder.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, copy_checkpoint
from agentrun.checkpoint.summary import Summary
from agentrun.job.fields import Layer
from agentrun.job.kept import KeptJob
from agentrun.values.templates import escape


@dataclass(frozen=True, slots=True)
class Relocation:
    """From the folders that the job was in, one on each machine that has worked on it, to the folder `here`."""

    folders: tuple[str, ...]
    here: Path

    def path(self, text: str) -> Path | None:
        """The path here; None if it was in none of the folders."""
        for folder in self.folders:
            if os.path.isabs(folder) and Path(text).is_relative_to(folder):
                return self.here / Path(text).relative_to(folder)
        return None


Moves = Callable[[str], str]
"""From the path of an output to where it is here."""


def relocate_checkpoint(checkpoint: Checkpoint, name: str, outputs: Moves, *, has_file: bool) -> Checkpoint:
    """The checkpoint as it is resumed here, under this name."""
    moved = copy_checkpoint(checkpoint)
    context = moved.context
    moved.job, context.place, context.completing = name, "", ""
    context.output = outputs(context.output) if context.output else ""
    context.files_from = outputs(context.files_from) if context.files_from else ""
    if has_file:
        # The name may be that of the folder in which the job file was.
        context.kept = {**context.kept, "name": escape(name)}
    return moved


def relocate_summary(summary: Summary, name: str, outputs: Moves, lists: Mapping[str, str]) -> Summary:
    """The summary of a run that ended elsewhere. `lists` has new names for the lists of written files."""
    output = summary.output
    if output is not None:
        listed = lists.get(output.listed, output.listed)
        output = structs.replace(output, path=outputs(output.path), listed=listed)
    return structs.replace(summary, job=name, place="", output=output)


def relocate_job(kept: KeptJob, name: str, places: Relocation, *, was: str) -> KeptJob:
    """What was asked, for the same job here; `was` is the name that it had before."""
    if kept.file is not None:
        file, layer = places.path(str(kept.file)) or kept.file, kept.layer
        if name != was or layer.get("name"):
            # Not the name that the job file gives it.
            layer = layer.merge(Layer(layer.label, {"name": escape(name)}))
        return replace(kept, file=file, base=file.parent, layer=layer)
    values: dict[str, Any] = {**kept.layer.values, "name": escape(name)}
    base = places.path(str(kept.base)) or kept.base
    return replace(kept, base=base, layer=Layer(kept.layer.label, values))

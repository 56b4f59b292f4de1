"""Where an imported job goes: its name, and the store that its job file names.

A launch looks for the job in that store. If it were imported into another place, the launch would refuse to run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agentrun.errors import CheckpointError, JobError, UsageError
from agentrun.job.address import StoreAddress, read_store
from agentrun.job.build import job_name
from agentrun.job.fields import FLAGS_LABEL, Layer
from agentrun.job.file import FILE_NAME, default_name, read_job_file
from agentrun.job.kept import JOB_JSON, decode_job_json
from agentrun.people.archive import SIDES, Archive, Transform, open_export, unchanged
from agentrun.values.templates import escape


@dataclass(frozen=True, slots=True)
class NamedStore:
    """The store that a job file names."""

    address: StoreAddress
    file: Path


def named_store(file: Path, *, here: Path, name: str = "", opening: Transform = unchanged) -> NamedStore | None:
    """The store that a job file in `here` names for the job in `file`, which is imported under `name`; None if none.

    The job file is the one that the job was started with, if it is here; otherwise job.toml or NAME.toml, if that is
    the job of this name. JobError if the first cannot be read, or the store's address is wrong.
    """
    file = Path(os.path.abspath(file))
    with open_export(file, opening) as export:
        name, started_with = checked_name(name or export.manifest.job), _job_file_in(export)
    if started_with and (here / started_with).is_file():
        return _store_in(here / started_with, read_job_file(here / started_with))
    for path in (here / FILE_NAME, here / f"{name}.toml"):
        try:
            layer = read_job_file(path)
            is_own = job_name([layer], has_file=True, default_name=default_name(path)) == name
        except JobError:
            continue
        if is_own:
            return _store_in(path, layer)
    return None


def check_store(asked: StoreAddress, named: NamedStore) -> None:
    """UsageError if the store that is asked for is not the one that the job file names: no launch would find it."""
    if asked.place != named.address.place:
        raise UsageError(
            f"{named.file}: names the store {named.address.shown}, and --store is {asked.shown}; leave out --store, or "
            f"change the job file"
        )


def _job_file_in(export: Archive) -> str:
    """The name of the job file that the job was started with; empty if it had none, or that is not known."""
    content = export.content_of(SIDES + JOB_JSON)
    try:
        # Only the name counts, wherever the file was.
        kept = decode_job_json(content, root=Path("/state")) if content is not None else None
    except CheckpointError:
        return ""
    return kept.file.name if kept is not None and kept.file is not None else ""


def _store_in(file: Path, layer: Layer) -> NamedStore | None:
    text = layer.get("store")
    if not isinstance(text, str) or not text:
        return None
    return NamedStore(read_store(text, base=file.parent, label=layer.label), file)


def checked_name(name: str) -> str:
    """The name, which becomes that of a folder; JobError if it cannot."""
    return job_name([Layer(FLAGS_LABEL, {"name": escape(name)})], has_file=False, default_name="job")

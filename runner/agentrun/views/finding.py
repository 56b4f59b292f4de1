"""Which job somebody means, opened: its description, and the store of its state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.errors import AgentrunError
from agentrun.job import home
from agentrun.job.fields import Layer
from agentrun.job.known import Found, named
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.store.port import Catalogue, Store

if TYPE_CHECKING:
    from agentrun.job.job import Job
    from agentrun.job.opening import OpenJob


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job to look at, or to post messages to. `job` is None if its description cannot be read: its records are
    there all the same."""

    name: str
    store: Store
    job: Job | None = None
    problem: str = ""
    """Why its description cannot be read."""
    command_name: str = ""
    """How to name the job in a command; its name if empty."""

    @property
    def shown(self) -> str:
        return self.command_name or self.name


def catalogue_at(root: Path) -> Catalogue:
    """The jobs in a state folder."""
    return FolderCatalogue(root)


def catalogue_near(cwd: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> Catalogue:
    """The jobs that somebody in `cwd` sees: in the state folder there, or in the nearest one above."""
    environ = os.environ if environ is None else environ
    root = home.nearest_root(cwd, state_dir, environ) or home.state_root(cwd, state_dir, environ)
    return FolderCatalogue(root)


def find_job(
    ref: str,
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    is_new: bool = False,
) -> Found:
    """What JOB means to somebody in `cwd`: a job file, file.py:function, or the name of a known job."""
    environ = os.environ if environ is None else environ
    return home.find_job(ref, cwd, state_dir, environ, open_place=FolderCatalogue, is_new=is_new)


def only_job(cwd: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> Found:
    """What somebody in `cwd` means who names no job: job.toml, or the only job that is known."""
    return home.only_job(cwd, state_dir, os.environ if environ is None else environ, open_place=FolderCatalogue)


def root_above(cwd: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The nearest state folder in a folder above; None if there is one in `cwd`, or elsewhere by setting."""
    environ = os.environ if environ is None else environ
    if home.state_root(cwd, state_dir, environ) != home.state_root(cwd, None, {}):
        return None
    root = home.nearest_root(cwd, state_dir, environ)
    return root if root is not None and root.parent != cwd else None


def find_asked(flags: Layer, root: Path) -> Found | None:
    """The job in the state folder `root` that flags without a name ask for; None if it is not known.

    The flags' paths are relative to the parent of `root`.
    """
    from agentrun.job import opening

    return opening.find_asked(flags, root, open_place=FolderCatalogue)


def open_job(
    ref: str | None,
    *,
    found: Found | None = None,
    flags: Layer | None = None,
    cwd: Path | None = None,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> OpenJob:
    """The job that `ref` means, built from its file, what its unfinished run has kept, and the flags."""
    # Imported here: `agentrun status` opens no job.
    from agentrun.job import opening

    return opening.open_job(
        ref,
        open_place=FolderCatalogue,
        found=found,
        flags=flags,
        cwd=cwd,
        state_dir=state_dir,
        environ=environ,
        fresh=fresh,
    )


def store_of(opened: OpenJob) -> Store:
    """Where the job's state is, or will be."""
    return FolderCatalogue(opened.root).store(opened.job.name)


def locate(ref: str, cwd: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> KnownJob:
    """The name and the store of the job that `ref` means. A known job is not opened; one that never ran is fine."""
    found = find_job(ref, cwd, state_dir, environ)
    if found.root is not None:
        return KnownJob(found.name, FolderCatalogue(found.root).store(found.name))
    opened = open_job(ref, found=found, cwd=cwd, state_dir=state_dir, environ=environ)
    return KnownJob(opened.job.name, store_of(opened), opened.job)


def open_known(ref: str, cwd: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> KnownJob:
    """The job that `ref` means, to look at; from its records alone if its description cannot be read."""
    try:
        opened = open_job(ref, cwd=cwd, state_dir=state_dir, environ=environ)
    except AgentrunError as error:
        known = _by_records(ref, cwd, state_dir, environ)
        if known is None:
            raise
        name, store = known
        return KnownJob(name, store, problem=error.message)
    return KnownJob(opened.job.name, store_of(opened), opened.job)


def _by_records(
    ref: str, cwd: Path, state_dir: str | None, environ: Mapping[str, str] | None
) -> tuple[str, Store] | None:
    """A job whose own description cannot be read."""
    from agentrun.job.file import FILE_NAME, default_name

    near = catalogue_near(cwd, state_dir, environ)
    if len(names := named(ref, near.names())) == 1:
        return names[0], near.store(names[0])
    file = cwd / ref / FILE_NAME if (cwd / ref).is_dir() else cwd / ref
    if file.suffix == ".toml":
        name = default_name(file)
        beside = catalogue_at(home.state_root(file.parent, state_dir, os.environ if environ is None else environ))
        return (name, beside.store(name)) if name in beside.names() else None
    try:
        found = find_job(ref, cwd, state_dir, environ)
    except AgentrunError:
        return None
    return (found.name, near.store(found.name)) if found.root is not None else None

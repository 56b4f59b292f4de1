"""Which job somebody means, opened: its description, and the store of its state."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.checkpoint.sealing import MissingKeyError, NotSealedError
from agentrun.errors import AgentrunError, CheckpointError, StoreError, UsageError
from agentrun.job import home
from agentrun.job.address import STORE_VARIABLE, StoreAddress, read_address
from agentrun.job.fields import Layer
from agentrun.job.known import Found, named
from agentrun.store.emptied import check_not_emptied
from agentrun.store.jobs import Jobs
from agentrun.store.port import Store
from agentrun.store.registry import known_roots
from agentrun.views.figures import run_ids

if TYPE_CHECKING:
    from agentrun.job.job import Job
    from agentrun.job.opening import OpenJob

_RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]+")


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
    run_id: str = ""
    """The run that was asked for by its id; empty if the job was."""

    @property
    def shown(self) -> str:
        return self.command_name or self.name


def catalogue_at(root: Path, asked: StoreAddress | None = None) -> Jobs:
    """The jobs seen from a state folder."""
    return Jobs(root, asked)


def catalogue_near(
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    store: str | None = None,
) -> Jobs:
    """The jobs that somebody in `cwd` sees: in the state folder there, or in the nearest one above; or in a store."""
    environ = os.environ if environ is None else environ
    root = home.nearest_root(cwd, state_dir, environ) or home.state_root(cwd, state_dir, environ)
    asked = asked_store(store, cwd)
    _check_there(asked)
    return Jobs(root, asked, environ)


def asked_store(store: str | None, cwd: Path) -> StoreAddress | None:
    """The store on the command line; a relative path in it is relative to `cwd`."""
    return read_address(store, base=cwd, where="--store") if store else None


def _check_there(asked: StoreAddress | None) -> None:
    """For those who only look: a file that is not there is not an empty store. UsageError."""
    if asked is not None and asked.kind == "sqlite" and not os.path.exists(asked.path):
        raise UsageError(f"{asked.shown}: there is no such file; check the address, or start a job there")


def _opener(store: str | None, cwd: Path, environ: Mapping[str, str]) -> Callable[..., Jobs]:
    """The store on the command line comes before the one in the job file."""
    flag = asked_store(store, cwd)
    return lambda root, asked=None, /: Jobs(root, flag if flag is not None else asked, environ)


def _default_root(store: str | None, cwd: Path, state_dir: str | None, environ: Mapping[str, str]) -> Path | None:
    """Where the local part of jobs in a shared store goes, if there is no state folder yet."""
    return home.state_root(cwd, state_dir, environ) if store or environ.get(STORE_VARIABLE) else None


def find_job(
    ref: str,
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    store: str | None = None,
    is_new: bool = False,
) -> Found:
    """What JOB means to somebody in `cwd`: a job file, file.py:function, the name of a known job, or a run's id."""
    environ = os.environ if environ is None else environ
    return home.find_job(
        ref,
        cwd,
        state_dir,
        environ,
        open_place=_opener(store, cwd, environ),
        is_new=is_new,
        default_root=_default_root(store, cwd, state_dir, environ),
        other_roots=lambda: known_roots(environ),
    )


def only_job(
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    store: str | None = None,
) -> Found:
    """What somebody in `cwd` means who names no job: job.toml, or the only job that is known."""
    environ = os.environ if environ is None else environ
    return home.only_job(
        cwd,
        state_dir,
        environ,
        open_place=_opener(store, cwd, environ),
        default_root=_default_root(store, cwd, state_dir, environ),
    )


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

    return opening.find_asked(flags, root, open_place=Jobs)


def open_job(
    ref: str | None,
    *,
    found: Found | None = None,
    flags: Layer | None = None,
    cwd: Path | None = None,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    store: str | None = None,
    fresh: bool = False,
) -> OpenJob:
    """The job that `ref` means, built from its file, what its unfinished run has kept, and the flags."""
    # Imported here: `agentrun status` opens no job.
    from agentrun.job import opening

    cwd, environ = cwd or Path.cwd(), os.environ if environ is None else environ
    return opening.open_job(
        ref,
        open_place=_opener(store, cwd, environ),
        found=found,
        flags=flags,
        cwd=cwd,
        state_dir=state_dir,
        environ=environ,
        fresh=fresh,
        default_root=_default_root(store, cwd, state_dir, environ),
        other_roots=lambda: known_roots(environ),
    )


def store_of(opened: OpenJob) -> Store:
    """Where the job's state is, or will be."""
    assert isinstance(opened.place, Jobs)
    return opened.place.with_patience(opened.job.store_patience_seconds).store(opened.job.name)


def address_of(opened: OpenJob) -> StoreAddress | None:
    """The store that the job's state is in, or will be; None: its folder, or a store that the caller brought."""
    return opened.place.address(opened.job.name) if isinstance(opened.place, Jobs) else None


def check_one_place(opened: OpenJob) -> None:
    """UsageError if the job has runs in another place than the one that is asked for: see `Jobs.check_one_place`."""
    assert isinstance(opened.place, Jobs)
    opened.place.check_one_place(opened.job.name)


def check_not_copied(opened: OpenJob) -> None:
    """UsageError if the job's folder is a copy of another one, with its unfinished run under the name of that folder.

    A start under the new name would run everything again.
    """
    from agentrun.job.file import default_name
    from agentrun.job.known import read_kept_job

    job, place = opened.job, opened.place
    assert isinstance(place, Jobs)
    if job.file is None or job.name != default_name(job.file) or job.name in (names := place.names_here()):
        return
    for name in names:
        try:
            kept = read_kept_job(place, name, opened.root)
            with place.store(name).reader(accept_edits=True) as reader:
                found = reader.checkpoint
        except AgentrunError:
            continue  # a job that cannot be read does not keep another from starting
        if kept is None or kept.file != job.file or found is None or found.context.base in ("", str(job.base)):
            continue
        done = f"{found.counts.get('done', 0):,} of {found.total:,} done"
        raise UsageError(
            f"{job.name}: this folder was copied or moved from {found.context.base}, with its unfinished run of {name} "
            f"({done}); continue that with: agentrun resume {name}; or start over with --fresh"
        )


def locate(
    ref: str,
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    store: str | None = None,
) -> KnownJob:
    """The name and the store of the job that `ref` means. A known job is not opened, and needs no key; one that never
    ran is fine."""
    environ = os.environ if environ is None else environ
    _check_there(asked_store(store, cwd))
    try:
        found = find_job(ref, cwd, state_dir, environ, store=store)
    except (CheckpointError, UsageError) as error:
        # What was asked of it may be sealed, or damaged. What it is called, and which runs it has, is not.
        is_unread = not isinstance(error, UsageError) or isinstance(error, MissingKeyError)
        known = None
        if is_unread or _RUN_ID.fullmatch(ref):
            known = _by_name(ref, cwd, state_dir, environ, store)
        if known is None:
            raise
        return known
    if found.root is not None:
        run_id = ref if _RUN_ID.fullmatch(ref) and ref != found.name else ""
        return KnownJob(found.name, _opener(store, cwd, environ)(found.root).store(found.name), run_id=run_id)
    opened = open_job(ref, found=found, cwd=cwd, state_dir=state_dir, environ=environ, store=store)
    return KnownJob(opened.job.name, store_of(opened), opened.job)


def is_known_as(name: str, cwd: Path, root: Path) -> bool:
    """Whether the plain name means the job below the state folder `root` to somebody in `cwd`."""
    try:
        found = find_job(name, cwd)
    except (CheckpointError, MissingKeyError):
        # Only a job that was found is read.
        return home.nearest_root(cwd, None, os.environ) == root
    return (found.root, found.name) == (root, name)


def _by_name(
    ref: str, cwd: Path, state_dir: str | None, environ: Mapping[str, str], store: str | None
) -> KnownJob | None:
    """The job of that name, or with that run, whatever can be read of it."""
    near = catalogue_near(cwd, state_dir, environ, store=store)
    if near.has(ref):
        return KnownJob(ref, near.store(ref))
    names = near.names()
    if len(matching := named(ref, names)) == 1:
        return KnownJob(matching[0], near.store(matching[0]))
    for name in names:
        if ref in _runs_of(at := near.store(name)):
            return KnownJob(name, at, run_id=ref)
    return None


def _runs_of(store: Store) -> list[str]:
    """The ids of a job's runs, also without its key; none if they cannot be read."""
    try:
        with store.reader(accept_edits=True) as reader:
            return [reader.run_id, *(one.run_id for one in reader.summaries)]
    except (MissingKeyError, NotSealedError):
        try:
            return run_ids(store)
        except AgentrunError:
            return []
    except AgentrunError:
        return []


def open_known(
    ref: str,
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    store: str | None = None,
) -> KnownJob:
    """The job that `ref` means, to look at; from its records alone if its description cannot be read."""
    _check_there(asked_store(store, cwd))
    try:
        opened = open_job(ref, cwd=cwd, state_dir=state_dir, environ=environ, store=store)
    except AgentrunError as error:
        if isinstance(error, (StoreError, MissingKeyError, NotSealedError)):
            raise
        known = _by_records(ref, cwd, state_dir, environ, store)
        if known is None:
            raise
        name, found = known
        if _is_same_for_records(found, error):
            raise
        return KnownJob(name, found, problem=error.message)
    return KnownJob(opened.job.name, store_of(opened), opened.job)


def _is_same_for_records(store: Store, error: AgentrunError) -> bool:
    """Whether the error keeps the records from being read, too: a wrong password does. CheckpointError if there are
    none any more."""
    try:
        with store.reader(accept_edits=True) as reader:
            has_run = bool(reader.run_id)
    except AgentrunError as other:
        return other.message == error.message
    if not has_run:
        check_not_emptied(store)
    return False


def _by_records(
    ref: str, cwd: Path, state_dir: str | None, environ: Mapping[str, str] | None, store: str | None
) -> tuple[str, Store] | None:
    """A job whose own description cannot be read."""
    from agentrun.job.file import FILE_NAME, default_name

    environ = os.environ if environ is None else environ
    near = catalogue_near(cwd, state_dir, environ, store=store)
    if near.has(ref):
        return ref, near.store(ref)
    if len(names := named(ref, near.names())) == 1:
        return names[0], near.store(names[0])
    file = cwd / ref / FILE_NAME if (cwd / ref).is_dir() else cwd / ref
    if file.suffix == ".toml":
        name = default_name(file)
        beside = Jobs(home.state_root(file.parent, state_dir, environ), asked_store(store, cwd), environ)
        return (name, beside.store(name)) if name in beside.names() else None
    try:
        found = find_job(ref, cwd, state_dir, environ, store=store)
    except AgentrunError:
        return None
    if found.root is None:
        return None
    return found.name, _opener(store, cwd, environ)(found.root).store(found.name)

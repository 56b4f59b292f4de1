"""Open a job: from a reference and flags to a checked job and the folder of its state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from agentrun.errors import AgentrunError, JobError, UsageError
from agentrun.job.address import StoreAddress, hide_secrets, read_store
from agentrun.job.build import build_job, job_name
from agentrun.job.env import load_env_file
from agentrun.job.fields import AGENTS, FLAGS_LABEL, KEPT_LABEL, KINDS, Layer
from agentrun.job.file import FILE_NAME, default_name, read_job_file
from agentrun.job.home import find_job, state_root
from agentrun.job.job import Job
from agentrun.job.kept import JOB_JSON, KeptJob, encode_job_json, relative
from agentrun.job.known import Found, Known, KnownJobs, OpenPlace, read_kept_job
from agentrun.job.naming import digest_ask, former_name, name_asked, same_value
from agentrun.system.trust import TRUST_VARIABLE
from agentrun.values.templates import escape


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A checked job, where its state is, and what to keep for the next launch."""

    job: Job
    root: Path
    """The state folder."""
    kept: Layer
    """The flags that later launches keep."""
    job_json: bytes
    place: KnownJobs
    """The jobs among which it was found, and with which its state is kept."""


def open_job(
    ref: str | None,
    *,
    open_place: OpenPlace,
    found: Found | None = None,
    flags: Layer | None = None,
    cwd: Path | None = None,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    fresh: bool = False,
    default_root: Path | None = None,
    other_roots: Callable[[], Iterable[Path]] = tuple,
) -> OpenJob:
    """The job that `ref` means (a job file, file.py:function, a known name; None: the flags alone).

    `found` is what `find_job` found for `ref`, if that was done already. `flags` override what
    was kept with an unfinished run, and that overrides the file.
    """
    cwd = (cwd or Path.cwd()).absolute()
    environ = os.environ if environ is None else environ
    flags = flags or Layer(FLAGS_LABEL)
    if found is None and ref is not None:
        is_new = bool(flags.get("name") or _has_items(flags))
        found = find_job(
            ref,
            cwd,
            state_dir,
            environ,
            open_place=open_place,
            is_new=is_new,
            default_root=default_root,
            other_roots=other_roots,
        )
    if found is not None and found.agent is not None:
        # As strong as a flag: it is refused where the unfinished run of that name has another one.
        flags = Layer(FLAGS_LABEL, {"agent": found.agent}).merge(flags)
    base_layers, base, file, default, digest = _foundation(found, flags, cwd, state_dir, environ, open_place)
    if found is not None and found.root is not None:
        root, name = found.root, found.name
    else:
        root = state_root(base, state_dir, environ)
        name = job_name([*base_layers, flags], has_file=file is not None, default_name=default)
    place = open_place(root, _store_in(base_layers, base))
    identity = Layer(KEPT_LABEL)
    if found is not None and found.kept is not None and file is not None:
        identity = _identity(found, base_layers, flags, default, place)
        base_layers = [base_layers[0], identity]
    kept = None if fresh else place.kept_flags(name)
    layers = [*base_layers, kept, flags] if kept is not None else [*base_layers, flags]
    job = build_job(layers, base=base, file=file, default_name=default)
    if found is not None and found.kind == "known":
        _check_same_name(job, found, place)
    elif place.is_elsewhere(job.name):
        _check_named(job, [*base_layers, flags])
    asked = identity.merge(kept or Layer(KEPT_LABEL)).merge(flags)
    if file is not None:
        remembered = KeptJob(base=base, file=file, layer=asked)
    else:
        values = reduce(Layer.merge, [*layers, Layer(JOB_JSON, {"name": job.name})], Layer(JOB_JSON))
        remembered = KeptJob(base=base, layer=values, asked=digest)
    return OpenJob(job, root, asked, encode_job_json(remembered, root=root), place)


def _store_in(layers: Sequence[Layer], base: Path) -> StoreAddress | None:
    """The store that the job file names. Whether it is text is checked with the rest of the job."""
    for layer in layers:
        if isinstance(text := layer.get("store"), str) and text:
            return read_store(text, base=base, label=layer.label)
    return None


def _identity(found: Found, layers: Sequence[Layer], flags: Layer, default: str, place: KnownJobs) -> Layer:
    """What a known job keeps from run to run beside its job file: the params and the name that make it this job.

    The file may have another name for it: it was started with --name, imported under another name, or the file was
    edited. In a shared store only a name that was noted counts: the job file here may be somebody else's.
    """
    assert found.kept is not None
    kept = found.kept.layer
    # The params that were kept tell its name; those that came into the file since then may be among the flags.
    given = Layer(FLAGS_LABEL, {"params": flags.get("params", {})})
    own = job_name([layers[0], given, kept], has_file=True, default_name=default)
    if own == found.name or place.is_elsewhere(found.name):
        return kept
    return kept.merge(Layer(KEPT_LABEL, {"name": escape(found.name)}))


def _check_same_name(job: Job, found: Found, place: KnownJobs) -> None:
    """What a shared store says of a job file is true in the folder that it was started in, and here perhaps not."""
    if job.name != found.name and place.is_elsewhere(found.name):
        raise UsageError(
            f"{found.name}: was started with a job file that here, at {job.file}, is the job {job.name}; go to its own "
            f"folder; if it is the same job, use: agentrun start {quote(str(job.file))} --name {quote(found.name)}"
        )


def _check_named(job: Job, layers: Sequence[Layer]) -> None:
    """In a store that others share, a name that was made of a folder's would soon be somebody else's, too."""
    if not any(layer.get("name") for layer in layers):
        where, how = job.name, "add --name NAME"
        if job.file is not None:
            where, how = str(job.file), f'add name = "{job.name}", or another one'
        raise JobError(f"{where}: a job in a shared store needs a name of its own; {how}")


def find_asked(flags: Layer, root: Path, *, open_place: OpenPlace) -> Found | None:
    """The known job that flags without a name ask for, if written in the folder of the state folder `root`."""
    if not _has_items(flags):
        return None
    asked = _name_asked(flags, root.parent, root, open_place)
    return Known(root, open_place).found(asked.name) if asked.is_known else None


def _has_items(flags: Layer) -> bool:
    return any(kind in flags.get("items", {}) for kind in KINDS)


class _Foundation(NamedTuple):
    """What the kept and the given flags are layered on."""

    layers: list[Layer]
    base: Path
    file: Path | None
    name: str
    """The default name."""
    asked: str = ""
    """The digest that the name was made from, if it was."""


def _foundation(
    found: Found | None,
    flags: Layer,
    cwd: Path,
    state_dir: str | None,
    environ: Mapping[str, str],
    open_place: OpenPlace,
) -> _Foundation:
    if found is not None and found.kind == "file" and found.file is not None:
        return _from_file(found.file)
    if found is not None and found.kind == "known":
        return _from_known(found, open_place)
    root, name = state_root(cwd, state_dir, environ), flags.get("name")
    if not name:
        return _from_flags(flags, cwd, root, open_place)
    # Without items this can only mean the job of that name as it was asked for before.
    before = read_kept_job(open_place(root), str(name), root) if not _has_items(flags) else None
    if before is not None and before.file is None:
        return _Foundation([before.layer], cwd, None, str(name), before.asked)
    return _Foundation([], cwd, None, str(name))


def _from_flags(flags: Layer, cwd: Path, root: Path, open_place: OpenPlace) -> _Foundation:
    """For a job without a file and a name."""
    if _has_items(flags):
        asked = _name_asked(flags, cwd, root, open_place)
        return _Foundation([], cwd, None, asked.name, asked.digest)
    known = Known(root, open_place)
    names = [one for one in known.names if _is_same_task(known.peek(one), flags, cwd)]
    # Without any, building the job says that there are no items.
    if not names:
        return _Foundation([], cwd, None, "job")
    return _from_known(known.only(names, said="several jobs match"), open_place)


def _from_file(file: Path, *more: Layer) -> _Foundation:
    return _Foundation([read_job_file(file), *more], file.parent, file, default_name(file))


def _from_known(found: Found, open_place: OpenPlace) -> _Foundation:
    if found.kept is None:
        raise UsageError(_why_unknown(found, open_place))
    if found.kept.file is not None:
        if not found.kept.file.is_file() and _is_elsewhere(found, open_place):
            # Where it would be is no path that anybody has named: the store knows it as seen from another folder.
            raise UsageError(f"{found.name}: its job file is not in this folder")
        # The file may have another default name by now: its folder was renamed, or copied.
        return _from_file(found.kept.file, found.kept.layer)._replace(name=found.name)
    return _Foundation([found.kept.layer], found.kept.base, None, found.name, found.kept.asked)


def _is_elsewhere(found: Found, open_place: OpenPlace) -> bool:
    assert found.root is not None
    return open_place(found.root).is_elsewhere(found.name)


def _why_unknown(found: Found, open_place: OpenPlace) -> str:
    """Why nobody knows what was asked, and what to do."""
    assert found.root is not None
    if not _is_elsewhere(found, open_place):
        return f"{found.name}: its job.json is gone; give the job file, or the flags, again"
    file = found.root.parent / FILE_NAME
    shown = quote(str(file)) if file.is_file() else "JOB_FILE"
    return (
        f"{found.name}: its store no longer has this job; if it was cleared there, start over with: "
        f"agentrun start {shown} --name {quote(found.name)} --fresh"
    )


def _is_same_task(kept: KeptJob | None, flags: Layer, base: Path) -> bool:
    """Whether a job without a file has the command or prompt that is asked for."""
    if kept is None or kept.file is not None or kept.base != base:
        return False
    given = [name for name in AGENTS if flags.get(name) is not None]
    return bool(given) and all(
        same_value(name, kept.layer.get(name), base) == same_value(name, flags.get(name), base) for name in given
    )


class _AskedName(NamedTuple):
    name: str
    digest: str
    """Empty for a name that was not made from it."""
    is_known: bool


def _name_asked(flags: Layer, base: Path, root: Path, open_place: OpenPlace) -> _AskedName:
    """The name of the job that the flags ask for: made from them, or the one that an earlier version gave it."""
    job = build_job([flags], base=base, file=None, default_name="job")
    digest = digest_ask(job, place=relative(base, root))
    name, before, known = name_asked(job, digest), former_name(job), Known(root, open_place)
    if name in known.names:
        kept = known.peek(name)
        if kept is not None and kept.asked not in ("", digest):
            # A name has four digits of the hash: among 300 jobs with one stem, two may well share them.
            raise UsageError(f"{name}: another job has this name by chance; give this one its own with --name")
        return _AskedName(name, digest, True)
    if before in known.names and _digest_kept(known.peek(before), root) == digest:
        return _AskedName(before, "", True)
    return _AskedName(name, digest, False)


def _digest_kept(kept: KeptJob | None, root: Path) -> str:
    """The digest of what was asked before; empty if that was a job file, or cannot be understood."""
    if kept is None or kept.file is not None:
        return ""
    try:
        job = build_job([kept.layer], base=kept.base, file=None, default_name="job")
    except AgentrunError:
        return ""
    return digest_ask(job, place=relative(kept.base, root))


def agent_environment(job: Job, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that `env_file` adds to the environment; JobError if one the agent needs is missing."""
    added: dict[str, str] = {}
    if job.env_file is not None:
        read = load_env_file(job.base / job.env_file)
        for name in (TRUST_VARIABLE, *hide_secrets(dict(read))):
            if name in read:
                raise JobError(f"{job.env_file}: sets {name}, which only the environment itself can")
        # The environment overrides the file, as in every tool that reads such files.
        added = {name: value for name, value in read.items() if name not in environ}
    missing = [name for name in job.needs_env if not (environ.get(name) or added.get(name))]
    if missing:
        where = job.env_file or "the environment"
        raise JobError(f"{job.name}: the agent needs {', '.join(missing)}; set it in {where}")
    return added

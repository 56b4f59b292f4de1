"""Where the state of jobs is, and which job a word on the command line means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from agentrun import jsontext
from agentrun.errors import CheckpointError, UsageError
from agentrun.jobfile import FILE_NAME

STATE_FOLDER = ".agentrun"
STATE_DIR_VARIABLE = "AGENTRUN_STATE_DIR"
JOB_JSON = "job.json"
JOB_JSON_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptJob:
    """What job.json says: the way back to a job file, or, where there is none, all that was asked."""

    base: Path
    file: Path | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    """With a job file: the params that led to this name."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Without one: a layer in the shape of a job file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What JOB means: a job file, a file.py:function (`agent`), or a known name (`folder` and `kept`)."""

    kind: Literal["file", "agent", "known"]
    file: Path | None = None
    agent: str | None = None
    folder: Path | None = None
    kept: KeptJob | None = None


def state_root(base: Path, state_dir: str | None, environ: Mapping[str, str]) -> Path:
    """The folder of the jobs' state folders: the flag's, the environment's, or `.agentrun` in `base`."""
    elsewhere = _elsewhere(state_dir, environ)
    return elsewhere if elsewhere is not None else base.absolute() / STATE_FOLDER


def known_jobs(start: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> list[Path]:
    """The job folders that `start` sees: in its own state root, or in the nearest one above."""
    root = nearest_root(start, state_dir, environ)
    return jobs_in(root) if root is not None else []


def nearest_root(start: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    elsewhere = _elsewhere(state_dir, environ or {})
    if elsewhere is not None:
        return elsewhere if elsewhere.is_dir() else None
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / STATE_FOLDER).is_dir():
            return folder / STATE_FOLDER
    return None


def jobs_in(root: Path) -> list[Path]:
    """The folders in a state root that hold a job, by name."""
    try:
        names = sorted(os.listdir(root))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"{root}: the state folder cannot be read: {error.strerror}") from None
    return [root / name for name in names if not name.startswith(".") and _is_job(root / name)]


def _is_job(folder: Path) -> bool:
    try:
        return any((folder / name).exists() for name in (JOB_JSON, "state.json", "runs"))
    except PermissionError:
        return True


def find_job(ref: str, cwd: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> Found:
    """What JOB on the command line means; UsageError, with the names that are known, where it means nothing.

    A path comes before a name, except for one that cannot be a job: a folder without job.toml, or a file of
    another kind that happens to have a known job's name.
    """
    if not ref.strip() or "\0" in ref:
        raise UsageError(f"the job is {ref!r}; give a job file, file.py:function, or a job's name")
    path = cwd / ref
    if path.is_dir() and (path / FILE_NAME).is_file():
        return Found(kind="file", file=_absolute(path / FILE_NAME))
    if ref.endswith(".toml") and (path.is_file() or "/" in ref):
        return _job_file(ref, path)
    source, colon, function = ref.rpartition(":")
    if colon and source.endswith(".py") and function:
        return Found(kind="agent", agent=ref)
    known = {folder.name: folder for folder in known_jobs(cwd, state_dir, environ)}
    if (folder := known.get(ref)) is not None:
        return Found(kind="known", folder=folder, kept=read_job_json(folder))
    if ref.endswith(".py"):
        raise UsageError(f"{ref}: which function is the agent? Give {ref}:NAME")
    if ref.endswith(".toml") or path.is_file():
        return _job_file(ref, path)
    raise UsageError(_unknown(ref, path, sorted(known)))


def _job_file(ref: str, path: Path) -> Found:
    if not path.is_file():
        raise UsageError(f"{ref}: there is no such job file; check its name, or make one with: agentrun init")
    return Found(kind="file", file=_absolute(path))


def _absolute(path: Path) -> Path:
    # Not resolved: a job file that is a link has its folder where the link is.
    return Path(os.path.normpath(path.absolute()))


def _unknown(ref: str, path: Path, names: list[str]) -> str:
    if path.is_dir():
        return f"{ref}: the folder has no {FILE_NAME}; give a job file, or make one with: agentrun init"
    near = get_close_matches(ref, names, n=1)
    if near:
        does = f"did you mean {near[0]}?"
    elif names:
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        does = f"known here: {', '.join(names[:8])}{more}"
    else:
        does = "no job is known here; give a job file, or file.py:function"
    return f"{ref}: no job of that name, and no such file; {does}"


def read_job_json(folder: Path) -> KeptJob | None:
    """The job.json of a job's folder, or None where it has none."""
    path = folder / JOB_JSON
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    return decode_job_json(data, root=folder.parent, where=str(path))


def encode_job_json(kept: KeptJob, *, root: Path) -> bytes:
    """Paths inside the folder that `root` is in are kept relative to it, so that it can be moved."""
    record: dict[str, Any] = {"version": JOB_JSON_VERSION}
    if kept.file is not None:
        record |= {"file": _relative(kept.file, root), "params": dict(kept.params)}
    else:
        record |= {"base": _relative(kept.base, root), "values": dict(kept.values)}
    return jsontext.encode(record, name=JOB_JSON) + b"\n"


def decode_job_json(data: bytes, *, root: Path, where: str = JOB_JSON) -> KeptJob:
    """CheckpointError where it is damaged or from a newer version."""
    try:
        record = jsontext.decode(data)
    except ValueError as error:
        raise _damaged(where, f"is not JSON ({error})") from None
    version = record.get("version") if isinstance(record, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise _damaged(where, "has no version")
    if version > JOB_JSON_VERSION:
        raise CheckpointError(f"{where}: is of version {version}, from a newer agentrun; use that one", file=where)
    file, params = record.get("file"), record.get("params", {})
    base, values = record.get("base"), record.get("values", {})
    if not isinstance(params, dict) or not isinstance(values, dict):
        raise _damaged(where, "has params or values that are no object")
    if isinstance(file, str) and file:
        path = _absolute(root.parent / file)
        return KeptJob(base=path.parent, file=path, params=params)
    if isinstance(base, str) and base:
        return KeptJob(base=_absolute(root.parent / base), values=values)
    raise _damaged(where, "names neither a job file nor a folder")


def _damaged(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where}: {what}; give the job file, or the flags of the first start, again", file=where)


def _relative(path: Path, root: Path) -> str:
    parent = root.absolute().parent
    return str(path.relative_to(parent)) if path.is_relative_to(parent) else str(path)


def _elsewhere(state_dir: str | None, environ: Mapping[str, str]) -> Path | None:
    given = state_dir or environ.get(STATE_DIR_VARIABLE)
    return Path(os.path.normpath(Path(given).absolute())) if given else None

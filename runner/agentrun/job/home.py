"""Where the state of jobs is, and which job a word on the command line means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from agentrun.errors import UsageError
from agentrun.job.file import FILE_NAME
from agentrun.job.kept import JOB_JSON, KeptJob, absolute, read_job_json

STATE_FOLDER = ".agentrun"
STATE_DIR_VARIABLE = "AGENTRUN_STATE_DIR"


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
        return Found(kind="file", file=absolute(path / FILE_NAME))
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
    return Found(kind="file", file=absolute(path))


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


def _elsewhere(state_dir: str | None, environ: Mapping[str, str]) -> Path | None:
    given = state_dir or environ.get(STATE_DIR_VARIABLE)
    return Path(os.path.normpath(Path(given).absolute())) if given else None

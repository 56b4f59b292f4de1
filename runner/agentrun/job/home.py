"""Where the state of jobs is, and which job a word on the command line means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Protocol

from agentrun.errors import UsageError
from agentrun.job.fields import Layer
from agentrun.job.file import FILE_NAME
from agentrun.job.kept import JOB_JSON, KeptJob, absolute, decode_job_json

STATE_FOLDER = ".agentrun"
STATE_DIR_VARIABLE = "AGENTRUN_STATE_DIR"


class KnownJobs(Protocol):
    """The jobs whose state is in one place, as far as finding and opening a job needs them."""

    def names(self) -> list[str]:
        """The jobs that are known there, sorted."""
        ...

    def job_json(self, name: str) -> bytes | None:
        """What was asked when the job was started last; None if that is not known."""
        ...

    def kept_flags(self, name: str) -> Layer | None:
        """The flags kept with the job's unfinished run; None without any."""
        ...


OpenPlace = Callable[[Path], KnownJobs]
"""From a state folder to the jobs in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What JOB means: a job file, a file.py:function (`agent`), or a known name (`root`, `name` and `kept`)."""

    kind: Literal["file", "agent", "known"]
    file: Path | None = None
    agent: str | None = None
    root: Path | None = None
    name: str = ""
    kept: KeptJob | None = None


def read_kept_job(known: KnownJobs, name: str, root: Path) -> KeptJob | None:
    """What was asked when the job was started last; None if that is not known."""
    data = known.job_json(name)
    return decode_job_json(data, root=root, where=str(root / name / JOB_JSON)) if data is not None else None


def state_root(base: Path, state_dir: str | None, environ: Mapping[str, str]) -> Path:
    """The folder of the jobs' state folders: the flag's, the environment's, or `.agentrun` in `base`."""
    elsewhere = _elsewhere(state_dir, environ)
    return elsewhere if elsewhere is not None else base.absolute() / STATE_FOLDER


def nearest_root(start: Path, state_dir: str | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The state folder that `start` sees: the one that is named, or the nearest one in it or above."""
    elsewhere = _elsewhere(state_dir, environ or {})
    if elsewhere is not None:
        return elsewhere if elsewhere.is_dir() else None
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / STATE_FOLDER).is_dir():
            return folder / STATE_FOLDER
    return None


def find_job(
    ref: str,
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    open_place: OpenPlace,
) -> Found:
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
    root = nearest_root(cwd, state_dir, environ)
    known = open_place(root).names() if root is not None else []
    if root is not None and ref in known:
        return Found(kind="known", root=root, name=ref, kept=read_kept_job(open_place(root), ref, root))
    if ref.endswith(".py"):
        raise UsageError(f"{ref}: which function is the agent? Give {ref}:NAME")
    if ref.endswith(".toml") or path.is_file():
        return _job_file(ref, path)
    raise UsageError(_unknown(ref, path, known))


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

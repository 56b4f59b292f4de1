"""Where the state of jobs is, and which job a word on the command line means."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from shlex import quote

from agentrun.errors import AgentrunError, JobError, ScriptError, UsageError
from agentrun.job.file import FILE_NAME, read_job_file
from agentrun.job.kept import absolute
from agentrun.job.known import LISTED, Found, Known, OpenPlace
from agentrun.job.script import program_argv, script_argv

STATE_FOLDER = ".agentrun"
STATE_DIR_VARIABLE = "AGENTRUN_STATE_DIR"
_GIVE = "give a job file, or file.py:function"
_RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]+")


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


def shared_place(base: Path) -> str:
    """Where the job in the folder `base` is, for others who share its store."""
    return f"{socket.gethostname()}:{base}"


def find_job(
    ref: str,
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    open_place: OpenPlace,
    is_new: bool = False,
    default_root: Path | None = None,
    other_roots: Callable[[], Iterable[Path]] = tuple,
) -> Found:
    """What JOB on the command line means; UsageError, with the names that are known, where it means nothing.

    A path comes before a name, except for one that cannot be a job: a folder without job.toml, or a file of
    another kind that happens to have a known job's name. A name need not be complete: `summarise` is the only job that
    begins with `summarise-`. `file.py:function` is the only job with that agent; with `is_new`, a job to be made.
    The id of a run means its job, also one in `other_roots`. `default_root` is used where no state folder is near.
    """
    if not ref.strip() or "\0" in ref:
        raise UsageError(f"the job is {ref!r}; give a job file, file.py:function, or a job's name")
    path = cwd / ref
    if path.is_dir() and (path / FILE_NAME).is_file():
        return Found(kind="file", file=absolute(path / FILE_NAME))
    if ref.endswith(".toml") and (path.is_file() or "/" in ref):
        return _job_file(ref, path)
    source, colon, function = ref.rpartition(":")
    is_agent = bool(colon and source.endswith(".py") and function)
    if is_agent and is_new:
        return Found(kind="agent", agent=ref)
    root = nearest_root(cwd, state_dir, environ) or default_root
    known = Known(root, open_place) if root is not None else None
    if known is not None and (names := known.with_agent(ref, cwd) if is_agent else known.named(ref)):
        return known.only(names, said=f"{ref}: several jobs match")
    if is_agent:
        raise UsageError(
            f"{ref}: no job known here has this agent; to start one, say what its items are: "
            f"agentrun start {quote(ref)} --items …"
        )
    if ref.endswith(".py"):
        why = f"which function is the agent? Give {ref}:NAME"
        raise _not_a_job(ref, why, ("python3", ref)) if path.is_file() else UsageError(f"{ref}: {why}")
    if ref.endswith(".toml") or path.is_file():
        return _job_file(ref, path)
    if _RUN_ID.fullmatch(ref) and (found := _with_run(ref, root, other_roots, open_place)) is not None:
        return found
    raise UsageError(_unknown(ref, path, known.names if known is not None else []))


def _with_run(
    run_id: str, root: Path | None, other_roots: Callable[[], Iterable[Path]], open_place: OpenPlace
) -> Found | None:
    """The job with this run: seen from `root`, or in another state folder of this user."""
    for one in dict.fromkeys([*([root] if root is not None else []), *other_roots()]):
        try:
            if (found := Known(one, open_place).with_run(run_id)) is not None:
                return found
        except AgentrunError:
            if one == root:
                raise
    return None


def only_job(
    cwd: Path,
    state_dir: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    open_place: OpenPlace,
    default_root: Path | None = None,
) -> Found:
    """The job of somebody who names none: that of job.toml here, or else the only one that is known."""
    if (cwd / FILE_NAME).is_file():
        return Found(kind="file", file=absolute(cwd / FILE_NAME))
    root = nearest_root(cwd, state_dir, environ) or default_root
    known = Known(root, open_place) if root is not None else None
    if known is None or not known.names:
        raise UsageError(f"which job? There is no {FILE_NAME} here, and no job is known; {_GIVE}")
    return known.only(known.names, said="which job? Known here")


def _job_file(ref: str, path: Path) -> Found:
    if not path.is_file():
        raise UsageError(f"{ref}: there is no such job file; check its name, or make one with: agentrun init")
    if not ref.endswith(".toml"):
        _check_toml(ref, path)
    return Found(kind="file", file=absolute(path))


def _check_toml(ref: str, path: Path) -> None:
    """A job file may have any name, but it is TOML; most other files that are given as a job are scripts."""
    argv = script_argv(ref, path)
    if argv is None:
        try:
            read_job_file(path)
            return
        except JobError:
            if not os.access(path, os.X_OK):
                raise UsageError(f"{ref}: is not a job file, which is TOML; make one with: agentrun init") from None
        argv = program_argv(ref)
    raise _not_a_job(ref, "is a program, not a job", argv)


def _not_a_job(ref: str, why: str, argv: tuple[str, ...]) -> ScriptError:
    does = "to run a program over items, give it after -- instead"
    return ScriptError(f"{ref}: {why}; {does}", ref=ref, argv=argv)


def _unknown(ref: str, path: Path, names: list[str]) -> str:
    if path.is_dir():
        return f"{ref}: the folder has no {FILE_NAME}; give a job file, or make one with: agentrun init"
    near = get_close_matches(ref, names, n=1)
    if near:
        does = f"did you mean {near[0]}?"
    elif names:
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        does = f"known here: {', '.join(names[:LISTED])}{more}"
    else:
        does = f"no job is known here; {_GIVE}"
    return f"{ref}: no job of that name, and no such file; {does}"


def _elsewhere(state_dir: str | None, environ: Mapping[str, str]) -> Path | None:
    given = state_dir or environ.get(STATE_DIR_VARIABLE)
    return Path(os.path.normpath(Path(given).absolute())) if given else None

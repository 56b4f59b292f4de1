"""The jobs that are known in one place, and which of them is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from agentrun.errors import AgentrunError, UsageError
from agentrun.job.address import StoreAddress
from agentrun.job.fields import KINDS, Layer
from agentrun.job.file import read_job_file
from agentrun.job.kept import JOB_JSON, KeptJob, absolute, decode_job_json

LISTED = 8
"""How many jobs a message lists."""


class KnownJobs(Protocol):
    """The jobs whose state is in one place, as far as finding and opening a job needs them."""

    def names(self) -> list[str]:
        """The jobs that are known there, sorted."""
        ...

    def has(self, name: str) -> bool:
        """Whether a job of exactly this name is known there."""
        ...

    def job_json(self, name: str) -> bytes | None:
        """What was asked when the job was started last; None if that is not known."""
        ...

    def kept_flags(self, name: str) -> Layer | None:
        """The flags kept with the job's unfinished run; None without any."""
        ...

    def find(self, run_id: str) -> str | None:
        """The job that has a run of this id."""
        ...

    def is_elsewhere(self, name: str) -> bool:
        """Whether the job's state is, or will be, in a store that others may share."""
        ...


class OpenPlace(Protocol):
    """From a state folder to the jobs seen from there, and in the store that a job file names."""

    def __call__(self, root: Path, asked: StoreAddress | None = None, /) -> KnownJobs: ...


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


def named(word: str, names: Sequence[str]) -> list[str]:
    """The job of that name, or else those whose names begin with it and a dash."""
    return [word] if word in names else [name for name in names if name.startswith(f"{word}-")]


class Known:
    """The jobs whose state is below `root`."""

    def __init__(self, root: Path, open_place: OpenPlace) -> None:
        self._root = root
        self._place = open_place(root)

    @cached_property
    def names(self) -> list[str]:
        return self._place.names()

    def named(self, word: str) -> list[str]:
        """The job of that name, or else those whose names begin with it and a dash."""
        return [word] if self._place.has(word) else named(word, self.names)

    def found(self, name: str) -> Found:
        return Found(kind="known", root=self._root, name=name, kept=read_kept_job(self._place, name, self._root))

    def with_run(self, run_id: str) -> Found | None:
        """The job that has a run of this id."""
        name = self._place.find(run_id)
        return self.found(name) if name is not None else None

    def peek(self, name: str) -> KeptJob | None:
        """What was asked; None if that cannot be read: one such job does not hide the others."""
        try:
            return read_kept_job(self._place, name, self._root)
        except AgentrunError:
            return None

    def with_agent(self, agent: str, base: Path) -> list[str]:
        """The jobs whose agent is this `file.py:function`, as written in `base`."""
        wanted = _absolute_agent(agent, base)
        return [name for name in self.names if _agent_of(self.peek(name)) == wanted]

    def only(self, names: Sequence[str], *, said: str) -> Found:
        """The only job of these; UsageError that lists them if there are several."""
        if len(names) == 1:
            return self.found(names[0])
        listed = [f"{name}{_items_of(self.peek(name))}" for name in names[:LISTED]]
        if len(names) > LISTED:
            listed.append(f"{len(names) - LISTED} more")
        raise UsageError(f"{said}: {', '.join(listed)}; give the full name of one, such as {names[0]}")


def _items_of(kept: KeptJob | None) -> str:
    """What tells jobs with similar names apart: their items, for those without a file."""
    items = kept.layer.get("items") if kept is not None and kept.file is None else None
    pattern = next((items[kind] for kind in KINDS if kind in items), None) if isinstance(items, Mapping) else None
    patterns = [pattern] if isinstance(pattern, str) else pattern or []
    return f" ({', '.join(patterns)})" if patterns else ""


def _agent_of(kept: KeptJob | None) -> str | None:
    if kept is None:
        return None
    try:
        agent = (read_job_file(kept.file) if kept.file is not None else kept.layer).get("agent")
    except AgentrunError:
        return None
    return _absolute_agent(agent, kept.base) if isinstance(agent, str) else None


def _absolute_agent(agent: str, base: Path) -> str:
    path, _, function = agent.rpartition(":")
    return f"{absolute(base / path)}:{function}" if path.endswith(".py") else agent

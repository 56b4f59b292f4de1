"""The options of one launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from agentrun.errors import UsageError
from agentrun.values.units import parse_length
from agentrun.values.until import Until, parse_until

Rerun = Literal["old-agent", "all"]
NoLimit = Literal["none"]
"""In place of a limit: removes that of the job for one launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one launch is asked to do, beyond its job."""

    fresh: bool = False
    rerun: Rerun | None = None
    """Which finished items to run again, besides those that changed."""
    resume: bool = False
    """Only resume an unfinished run; without one there is nothing to do."""
    limit: int | None = None
    only: tuple[str, ...] = ()
    """Patterns for keys: only these items are run in this launch; empty: all."""
    until: Until | NoLimit | None = None
    """No new items after this time; None: as the job says."""
    max_time: float | NoLimit | None = None
    """No new items after so many seconds; None: as the job says."""
    failed: bool = False
    allow_gone: bool = False
    accept_edits: bool = False
    overwrite: bool = False
    forget_steps: bool = False
    now: bool = False
    """Try at once, although the last launch was told to wait until later."""
    no_wait: bool = False
    """End where the launch would wait for a quota."""
    wait_seconds: float = 5.0
    """How long to wait for another runner."""


def only_of(given: str | Iterable[str], *, name: str = "only") -> tuple[str, ...]:
    """Patterns for the keys of items, as the user gave them; `name` is for the message."""
    patterns = (given,) if isinstance(given, str) else tuple(given)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:
            raise UsageError(f"{name} is {pattern!r}; write a key, or a pattern such as 'docs/2026-*'")
    return patterns


def rerun_of(given: str, *, name: str = "rerun") -> Rerun:
    """Which finished items to run again, as the user wrote it; `name` is for the message."""
    choices: tuple[Rerun, ...] = ("old-agent", "all")
    for choice in choices:
        if given == choice:
            return choice
    raise UsageError(f"{name} is {given!r}; write old-agent, for the results of older agent versions, or all")


def until_of(given: Any, *, name: str = "until") -> Until | NoLimit:
    """A time to stop at, as the user wrote it; `name` is for the message."""
    try:
        return "none" if given == "none" else parse_until(given)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None


def max_time_of(given: Any, *, name: str = "max_time") -> float | NoLimit:
    """How long items are started, as the user wrote it; `name` is for the message."""
    try:
        return "none" if given == "none" else parse_length(given)
    except ValueError as error:
        raise UsageError(f"{name} {error}") from None

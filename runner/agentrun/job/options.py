"""The options of one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from agentrun.errors import UsageError
from agentrun.values.units import parse_length
from agentrun.values.until import Until, parse_until

Rerun = Literal["old-agent", "all"]
NoLimit = Literal["none"]
"""Given where a limit could be: this launch does without the limit that the job has."""


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
    pilot: int | None = None
    """Only so many items, from all over the list, are run in this launch, and what the rest will take is estimated."""
    until: Until | NoLimit | None = None
    """No new items after this time; None: as the job says."""
    max_time: float | NoLimit | None = None
    """No new items after so many seconds; None: as the job says."""
    failed: bool = False
    adopt: bool = False
    """Continue a job of a shared store that belongs to another place: this one has it from now on."""
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


def read_options(given: Mapping[str, Any], *, are_flags: bool = False) -> Options:
    """The options among these values, as the user gave them; None counts as not given."""
    readers: dict[str, Callable[..., Any]] = {
        "rerun": rerun_of, "only": only_of, "until": until_of, "max_time": max_time_of, "pilot": pilot_of,
    }  # fmt: skip

    def called(name: str) -> str:
        return f"--{name.replace('_', '-')}" if are_flags else name

    found = {name: value for one in fields(Options) if (value := given.get(name := one.name)) is not None}
    for name, read in readers.items():
        if name in found:
            found[name] = read(found[name], name=called(name))
    for name in ("limit", "only"):
        if "pilot" in found and name in found:
            raise UsageError(f"{called('pilot')} and {called(name)} are both given; give one of them")
    return Options(**found)


def pilot_of(given: Any, *, name: str = "pilot") -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError(f"{name} is {given!r}; write a number of items, 1 or more")
    return given


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

"""The options of one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentrun.errors import UsageError

Rerun = Literal["old-agent", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one launch is asked to do, beyond its job."""

    fresh: bool = False
    rerun: Rerun | None = None
    """Which finished items to run again, besides those that changed."""
    resume: bool = False
    """Only resume an unfinished run; without one there is nothing to do."""
    limit: int | None = None
    failed: bool = False
    allow_gone: bool = False
    accept_edits: bool = False
    overwrite: bool = False
    forget_steps: bool = False
    wait_seconds: float = 5.0


def rerun_of(given: str) -> Rerun:
    """Which finished items to run again, as the user wrote it."""
    choices: tuple[Rerun, ...] = ("old-agent", "all")
    for choice in choices:
        if given == choice:
            return choice
    raise UsageError(f"rerun is {given!r}; write old-agent, for the results of older agent versions, or all")

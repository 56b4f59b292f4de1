"""The options of one launch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one launch is asked to do, beyond its job."""

    fresh: bool = False
    resume: bool = False
    """Only resume an unfinished run; without one there is nothing to do."""
    limit: int | None = None
    failed: bool = False
    allow_gone: bool = False
    accept_edits: bool = False
    overwrite: bool = False
    forget_steps: bool = False
    wait_seconds: float = 5.0

"""A job as it can be seen without its key: the figures of its runs, and who is at work."""

from __future__ import annotations

from dataclasses import dataclass

from agentrun.checkpoint.figures import Figures
from agentrun.store.holder import Holder


@dataclass(frozen=True, slots=True)
class Glance:
    """Nothing in it is sealed, and nobody vouches for it."""

    unfinished: Figures | None
    ended: tuple[Figures, ...]
    """The runs that ended, newest first."""
    holder: Holder | None
    posted: int
    """How many messages no runner has processed yet."""
    is_sealed: bool
    """Whether any of its runs is sealed."""

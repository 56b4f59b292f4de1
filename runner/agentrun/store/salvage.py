"""Salvage: what is left of a state that cannot be loaded, and a new one made from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is wrong with a job's state, and what a repair would make of it.

    Without a `problem` nothing is wrong, and the other fields describe the run as it is.
    """

    problem: str = ""
    """Where and what, in one line."""
    run_id: str = ""
    """The run that can be resumed: now, or after the repair. Empty if it has ended, or if there is none."""
    records: int = 0
    """How many records are whole."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many items the whole records put into each state."""
    found_in: Sequence[str] = ()
    """The files that hold these records."""
    lost: Sequence[str] = ()
    """What no whole record says any more."""
    unknown: Sequence[str] = ()
    """What the run knew of itself besides its records and cannot be found, and what is used instead."""
    aside: Sequence[str] = ()
    """Where the repair keeps the old files."""
    notes: Sequence[str] = ()
    """What else is there, and is left as it is."""

    @property
    def items(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "items": self.items}


class Salvage(ABC):
    """The repair of one job's state, with its lock held throughout."""

    @abstractmethod
    def examine(self) -> Damage:
        """What is wrong, changing nothing.

        CheckpointError if no repair can help: a newer version wrote the state, or no whole record is left.
        """

    @abstractmethod
    def rebuild(self) -> None:
        """Write the state that `examine` described. The old files are durable elsewhere before they are replaced."""

"""What passes through a launch: an item to run, how it ended, and the record to commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from agentrun.agents.failure import Failure, Judgement
from agentrun.item import Item
from agentrun.store.port import Entry

if TYPE_CHECKING:
    pass


@dataclass(slots=True)
class Ended:
    """How an item ended in this launch; `back` puts it back to pending."""

    kind: Literal["done", "failed", "skipped", "waiting", "back"]
    output: bytes | None = None
    failure: Failure | None = None
    judgement: Judgement | None = None
    tries: list[dict[str, Any]] = field(default_factory=list)
    carry: Any = None
    carry_set: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """What its record is to say besides: the question, the files, a warning."""
    made_files: bool = False
    spent_up: str = ""
    """Why the budget has no room for another attempt."""


@dataclass(slots=True)
class Unit:
    """A record to commit, and the slot that goes on once it is on disk, if it is one that frees a slot."""

    row: int
    slot: int | None
    entry: Entry
    is_counted: bool = False
    """The ledger has it already."""


@dataclass(slots=True)
class Work:
    """An item to run and its row in the ledger."""

    row: int
    item: Item

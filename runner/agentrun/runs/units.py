"""What passes through a launch: an item to run, how it ended, and the record to commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from agentrun.agents.failure import Failure, Judgement
from agentrun.checkpoint.record import PublishedFile, Question, Record, Try
from agentrun.item import Item


@dataclass(slots=True)
class Work:
    """An item to run and its row in the ledger."""

    row: int
    item: Item
    since: str = ""
    """The time of the first checkpoint that names it."""
    began: float = 0.0
    """When its slot started it, by the monotonic clock; 0 before that."""
    number: int = 0
    """The number of its last attempt in this launch."""
    doing: str = ""
    """Its current step, or what it last reported, for people who watch."""


@dataclass(slots=True)
class Ended:
    """How an item ended in this launch; `back` puts it back to pending."""

    kind: Literal["done", "failed", "skipped", "waiting", "back"]
    output: bytes | None = None
    failure: Failure | None = None
    judgement: Judgement | None = None
    tries: list[Try] = field(default_factory=list)
    carry: Any = None
    carry_set: bool = False
    question: Question | None = None
    files: list[PublishedFile] = field(default_factory=list)
    warning: str = ""
    made_files: bool = False
    is_empty: bool = False
    """It is done, with an output that is empty."""
    refused: int = 0
    """How often the item was refused, which used up no attempt."""
    budget_reached: str = ""
    """Why the budget has no room for another attempt."""


@dataclass(slots=True)
class Unit:
    """A record to commit, and the slot that it frees once it is on disk, if it does."""

    row: int
    slot: int | None
    record: Record
    is_counted: bool = False
    """The ledger has it already."""

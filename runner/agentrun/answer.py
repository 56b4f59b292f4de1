"""An answer: what a person said to an item's question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """True if the person said yes. `answer["draft"]` is that detail of the question, as the person edited it."""

    yes: bool
    text: str = ""
    """What was said in words."""
    by: str = ""
    at: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.yes

    def __getitem__(self, name: str) -> Any:
        return self.details[name]

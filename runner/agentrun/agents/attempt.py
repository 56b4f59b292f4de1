"""An attempt: one try of one item, how it ended, and the channel between it and the runner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentrun.agents.failure import Failure
from agentrun.item import Item
from agentrun.values.names import work_name

Channel = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
OutcomeKind = Literal["done", "failed", "waiting", "skipped", "cancelled", "lost"]


@dataclass(slots=True)
class Attempt:  # not frozen: that makes it thrice as dear, and there is one for each item
    """One try of one item. `(item.key, generation, launch, number)` is its identity."""

    item: Item
    generation: int
    launch: int
    number: int
    run_id: str
    params: Mapping[str, Any]
    carry: Any
    timeout_seconds: float | None
    log_path: Path
    """Where the attempt's prints go. One file a slot, emptied by the executor when an attempt begins."""
    folder: str = ""
    """Where the items have their own folders; see `work`."""

    @property
    def work(self) -> str:
        """The item's own folder, which may not be there yet: `dir` in it is its scratch, `out` its files."""
        return f"{self.folder}/{work_name(self.item.key, self.generation)}"


@dataclass(slots=True)
class Outcome:
    """How an attempt ended. `output` is JSON text, made and checked where the attempt ran."""

    kind: OutcomeKind
    output: bytes = b"null"
    failure: Failure | None = None
    made_files: bool = False
    """There may be something in the item's `out`."""

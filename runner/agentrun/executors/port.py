"""The executor port: how the runner has one attempt of one item done, wherever that happens.

The channel carries a few JSON messages from the attempt to the runner, each answered:

    {"type": "log", "text": …}                              → {}
    {"type": "carry", "value": …}                           → {}
    {"type": "progress", "text": …}                         → {}
    {"type": "step_get", "name": …}                         → {"n": 0, "found": true, "output": "…"}, or without
    {"type": "step_put", "name": …, "n": 0, "output": "…"}  → {}, once it is on disk
    {"type": "ask", "question": …, "details": {…}}          → {"answer": {"yes": true, "text": …, …}} or {"park": true}
    {"type": "usage", "model": …, "input_tokens": …, "output_tokens": …, "cost": …, …} → {}

`n` counts how often the attempt asked for that name before. `output` is JSON as text. After {"park": true} the attempt
is to end, with the outcome `waiting`. Whatever is wrong with a message is answered {"error": …}.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from agentrun.failure import Failure
from agentrun.item import Item
from agentrun.keynames import work_name

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


class Executor(Protocol):
    """Runs attempts, at most `concurrency` at a time; all methods are called on the event loop.

    `run` never raises for what an agent does: that is an Outcome. When it has returned, nothing of the attempt is
    alive any more. A timeout is the executor's to enforce, and gives `failed` with a `timeout` failure.
    Cancelling the task that awaits `run` ends the attempt and raises CancelledError when it is gone.
    """

    async def start(self) -> None: ...

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome: ...

    async def close(self) -> None:
        """End what is left, and let agents close. Called once, also after a failed start."""
        ...

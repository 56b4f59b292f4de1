"""An attempt: one try of one item, its outcome, and the channel between it and the runner.

One vocabulary for the channel, in all executors:

| word | meaning |
|---|---|
| channel | carries messages from one attempt to the runner, and a reply to each |
| runner end | answers the messages: `RunnerEnd` in `launch/channel.py`, one for each attempt |
| agent end | sends them, for the agent: `LoopEnd`, `ThreadEnd`, `WorkerEnd`, `ProgramEnd`, `ServeEnd`, `TrialEnd` |
| connection | one socket: `ProgramConnection` in the runner, `RunnerConnection` in a program |
| worker | a process of ours that runs a sync agent; the runner holds it as a `WorkerProcess` |
| program | a process of the user's; one that serves is held as a `ProgramProcess` |

An agent end *sends* a message, or *calls*, which is to send it and wait for the reply. The runner end *answers*. An end
that is *closed* lets nothing through any more. A process is asked to exit by *closing its input*, and *killed* with
everything it started.

The messages and replies, as JSON; their types are in `agents/messages.py`:

    {"type": "log", "text": …}                              → {}
    {"type": "progress", "text": …}                         → {}
    {"type": "carry", "value": …}                           → {}
    {"type": "step_get", "name": …}                         → {"n": 0, "found": true, "output": "…"}, or "found": false
    {"type": "step_put", "name": …, "n": 0, "output": "…"}  → {}, once it is on disk
    {"type": "ask", "question": …, "details": {…}}          → {"answer": {"yes": true, "text": …, …}} or {"park": true}
    {"type": "usage", "model": …, "input_tokens": …, "output_tokens": …, "cost": …, …} → {}

`n` counts how often the attempt asked for that name before. `output` is JSON as text. After {"park": true} the attempt
must end with the outcome `waiting`. A message with something wrong in it is answered {"error": …}.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from agentrun.agents.crossing import Crossing
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Message, Refused, Reply, read_message
from agentrun.item import Item
from agentrun.values.names import work_name

Channel = Callable[[Message], Awaitable[Reply]]
OutcomeKind = Literal["done", "failed", "waiting", "skipped", "cancelled", "lost"]


async def call_json(channel: Channel, given: Mapping[str, Any]) -> Reply:
    """The channel's reply to a message in its JSON form; a malformed one is refused."""
    try:
        message = read_message(given)
    except ValueError as error:
        return Refused(str(error))
    return await channel(message)


class AgentEnd(Protocol):
    """The agent's end of one attempt's channel."""

    @property
    def awaits(self) -> bool:
        """Whether `call` returns an awaitable: the agent runs on the event loop."""
        ...

    def log(self, text: str) -> None:
        """Write to the attempt's log, in order with what the agent prints."""

    def send(self, message: Message) -> None:
        """Send a message whose reply does not matter."""

    def call(self, message: Message) -> Any:
        """Send a message and return its reply; on the event loop, an awaitable of the reply."""


class Attempt(msgspec.Struct):
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
    """Where the attempt's prints go: one file a slot, emptied by the executor when an attempt starts."""
    folder: str = ""
    """The folder that holds the items' own folders; see `work`."""

    @property
    def work(self) -> str:
        """The item's own folder, which may not exist yet: `dir` in it is its scratch, `out` its files."""
        return f"{self.folder}/{work_name(self.item.key, self.generation)}"

    def as_json(self) -> dict[str, Any]:
        """The attempt for another process, by reference: the item's place or content, never the agent."""
        item = self.item
        path = None if item.path is None else str(item.path)
        return {
            "item": {"index": item.index, "key": item.key, "data": item.data, "path": path, "line": item.line},
            "generation": self.generation,
            "launch": self.launch,
            "number": self.number,
            "run_id": self.run_id,
            "params": dict(self.params),
            "carry": self.carry,
            "timeout_seconds": self.timeout_seconds,
            "log_path": str(self.log_path),
            "folder": self.folder,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Attempt:
        item = given["item"]
        path = None if item["path"] is None else Path(item["path"])
        return cls(
            item=Item(item["index"], item["key"], item["data"], path, item["line"]),
            generation=given["generation"],
            launch=given["launch"],
            number=given["number"],
            run_id=given["run_id"],
            params=given["params"],
            carry=given["carry"],
            timeout_seconds=given["timeout_seconds"],
            log_path=Path(given["log_path"]),
            folder=given["folder"],
        )


class Outcome(msgspec.Struct):
    """How an attempt ended. `output` is JSON text, made and checked where the attempt ran."""

    kind: OutcomeKind
    output: bytes = b"null"
    failure: Failure | None = None
    made_files: bool = False
    """The item's `out` may hold files."""


class Ended(Crossing, tag_field="type", tag="outcome", frozen=True):
    """A worker's last word on an attempt: the outcome without `output`, which may be large and crosses as bytes."""

    ends: bool
    """Whether the worker exits, because its agent could not be loaded."""
    kind: OutcomeKind
    failure: Failure | None
    made_files: bool

    @classmethod
    def of(cls, outcome: Outcome, *, ends: bool) -> Ended:
        return cls(ends, outcome.kind, outcome.failure, outcome.made_files)

    def outcome(self, output: bytes) -> Outcome:
        return Outcome(self.kind, output, self.failure, self.made_files)

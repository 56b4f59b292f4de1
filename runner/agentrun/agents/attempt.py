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

Every message has an address: `id`, the attempt's, and `no`, which message of the attempt it is. A reply repeats it, and
an outcome has the number that follows. What is addressed to another attempt, or does not come in its turn, is *stray*:
it is never taken for an answer, and ends the worker or program that sent it, and the attempt in flight, which is lost.

The messages and replies, as JSON and without their address; their types are in `agents/messages.py`:

    {"type": "log", "text": …}                              → {}
    {"type": "progress", "text": …}                         → {}
    {"type": "warn", "text": …}                             → {}
    {"type": "carry", "value": …}                           → {}
    {"type": "step_get", "name": …}                         → {"n": 0, "found": true, "output": "…"}, or "found": false
    {"type": "step_put", "name": …, "n": 0, "output": "…"}  → {}, once it is on disk
    {"type": "entries_get", "name": …}                      → {"entries": ["…", …]}
    {"type": "entry_add", "name": …, "output": "…"}         → {}, once it is on disk
    {"type": "ask", "question": …, "details": {…}}          → {"answer": {"yes": true, "text": …, …}} or {"park": true}
    {"type": "usage", "model": …, "input_tokens": …, "output_tokens": …, "cost": …, …} → {}

`n` counts how often the attempt asked for that name before. `output` is JSON as text. After {"park": true} the attempt
must end with the outcome `waiting`. A message with something wrong in it is answered {"error": …}. Of the optional
fields, `request` of step_get is a digest of what the step is given: a step that has one is known by its name alone,
and not by its place among the others; `view` of step_put and entry_add is what people are shown in place of the output;
`key` of ask is what the answer is matched by in place of the words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
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


def addressed(attempt_id: str, channel: Channel) -> Channel:
    """The channel for messages that have no address yet: each gets the attempt's id and the next number."""
    sent = 0

    def send(message: Message) -> Awaitable[Reply]:
        nonlocal sent
        sent += 1
        message.address(attempt_id, sent)
        return channel(message)

    return send


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


class StrayMessage(Exception):
    """Something arrived that does not belong to the attempt in flight, or not in its turn."""


class Attempt(msgspec.Struct):
    """One try of one item. `(item.key, generation, launch, number)` is its identity within the run."""

    item: Item
    generation: int
    launch: int
    number: int
    """Which attempt of this generation in this launch it is; it goes on counting when a parked item is answered."""
    run_id: str
    series: str
    """The id of the first run of the run's series: what the keys of side effects are made from."""
    params: Mapping[str, Any]
    carry: Any
    timeout_seconds: float | None
    log_path: Path
    """Where the attempt's prints go: one file a slot, emptied by the executor when an attempt starts."""
    folder: str = ""
    """The folder that holds the items' own folders; see `work`."""
    refused: int = 0
    """How often it was refused before, under the same number."""
    slot: int = 0
    """The slot of the launch that it runs in."""

    @property
    def id(self) -> str:
        """Its identity, as one word: every message between runner and agent carries it."""
        # The key comes last: it is the only part that may hold a NUL.
        number = f"{self.number}" if not self.refused else f"{self.number}.{self.refused}"
        parts = f"{self.run_id}\0{self.launch}\0{number}\0{self.generation}\0{self.item.key}"
        return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()

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
            "series": self.series,
            "refused": self.refused,
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
            series=given["series"],
            refused=given["refused"],
        )


class Outcome(msgspec.Struct):
    """How an attempt ended. `output` is JSON text, made and checked where the attempt ran."""

    kind: OutcomeKind
    output: bytes = b"null"
    failure: Failure | None = None
    made_files: bool = False
    """The item's `out` may hold files."""


class Ended(Crossing, tag_field="type", tag="outcome", frozen=True):
    """A worker's last word on an attempt: the outcome without `output`, which may be large and crosses as bytes in the
    same frame."""

    id: str
    """The attempt's."""
    no: int
    """The number after that of the last message."""
    ends: bool
    """Whether the worker exits: its agent could not be loaded, or it has used up its descriptors."""
    kind: OutcomeKind
    failure: Failure | None
    made_files: bool

    @classmethod
    def of(cls, outcome: Outcome, *, attempt_id: str, no: int, ends: bool) -> Ended:
        return cls(attempt_id, no, ends, outcome.kind, outcome.failure, outcome.made_files)

    def outcome(self, output: bytes) -> Outcome:
        return Outcome(self.kind, output, self.failure, self.made_files)

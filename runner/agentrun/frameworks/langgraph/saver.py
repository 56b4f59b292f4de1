"""The saver: a graph's checkpoints and pending writes, in the item's journal.

**Invariant: no node or task begins before everything that finished before it is on disk.** LangGraph waits for
checkpoints (durability "sync"), but not for what a task wrote: the next task of an `@entrypoint` would begin beside
that commit. So `StartsWhenSaved` waits, too. Reads come from memory, which the journal fills when an attempt begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_id,
)
from langgraph.checkpoint.memory import InMemorySaver
from msgspec import Struct, convert, json, to_builtins

from agentrun.agents.memory import ItemMemory
from agentrun.agents.messages import STEP_LIMIT_BYTES
from agentrun.errors import Fail
from agentrun.frameworks.langgraph.growth import grown, growth
from agentrun.frameworks.langgraph.serializer import JournalSerializer
from agentrun.frameworks.langgraph.views import view_of_checkpoint, view_of_writes

Typed = tuple[str, bytes]
"""A value as the serializer gives it: its kind, and its content."""
Version = str | int | float
T = TypeVar("T")


class Put(Struct, tag_field="kind", tag="put"):
    """A checkpoint, with the values of those channels alone that changed since the one before it."""

    thread: str
    ns: str
    id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    values: list[tuple[str, Version, Typed]]
    """Channel, version, value."""
    grown: list[tuple[str, Version, Version, bytes, bytes]] = []
    """Channel, version, the version before it, and what `growth` gives of the two."""


class Writes(Struct, tag_field="kind", tag="writes"):
    """What a task wrote: its result, its error, or its question. They belong to the checkpoint that it ran from."""

    thread: str
    ns: str
    id: str
    task: str
    path: str
    writes: list[tuple[int, str, Typed]]
    """Index, channel, value."""


class Deleted(Struct, tag_field="kind", tag="deleted"):
    thread: str


Entry = Put | Writes | Deleted


class Journal(Protocol):
    """An append-only list. When `add` returns, the entry and all that were added before it are on disk."""

    async def entries(self) -> list[Any]: ...

    async def add(self, entry: Any, *, view: str) -> None: ...


class ItemJournal:
    """The entries of one name in the item's journal."""

    def __init__(self, memory: ItemMemory, name: str) -> None:
        self._memory = memory
        self._name = name

    async def entries(self) -> list[Any]:
        return await self._memory.entries(self._name)

    async def add(self, entry: Any, *, view: str) -> None:
        await self._memory.add(self._name, entry, view=view)


class JournalSaver(InMemorySaver):
    """LangGraph's saver in memory, of which every write is also an entry of the journal.

    Made on the event loop, and loaded before use. Everything is written there: a node that is a plain function may run
    a subgraph in its thread, or on a loop of its own.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(serde=JournalSerializer())
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._newest: dict[tuple[str, str, str], Version] = {}
        """By thread, namespace and channel: the version that was written last."""
        self._adding: asyncio.Task[None] | None = None
        """The newest entry: when it is on disk, all are."""

    async def load(self) -> None:
        """Take in what earlier attempts left in the journal."""
        for entry in await self._journal.entries():
            self._take_in(convert(entry, Entry))

    def _take_in(self, entry: Entry) -> None:
        match entry:
            case Put(thread, ns, id):
                for channel, version, value in entry.values:
                    self._restore(thread, ns, channel, version, value)
                for channel, version, before, header, added in entry.grown:
                    kind, old = self.blobs[thread, ns, channel, before]
                    self._restore(thread, ns, channel, version, (kind, grown(old, header, added)))
                self.storage[thread][ns][id] = (entry.checkpoint, entry.metadata, entry.parent)
            case Writes(thread, ns, id, task, path):
                for index, channel, value in entry.writes:
                    self.writes[thread, ns, id][task, index] = (task, channel, value, path)
            case Deleted(thread):
                super().delete_thread(thread)

    def _restore(self, thread: str, ns: str, channel: str, version: Version, value: Typed) -> None:
        self.blobs[thread, ns, channel, version] = value
        self._newest[thread, ns, channel] = version

    def is_on_loop(self) -> bool:
        """Whether the caller runs on the loop that the saver was made on."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    # ---- writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._on_loop(self._put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self._on_loop(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._on_loop(self._delete_thread(thread_id))

    async def _on_loop(self, writing: Coroutine[Any, Any, T]) -> T:
        if self.is_on_loop():
            return await writing
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(writing, self._loop))

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        there = config["configurable"]
        thread, ns = there["thread_id"], there.get("checkpoint_ns", "")
        config = {**config, "configurable": {**there, "checkpoint_ns": ns}}
        after = super().put(config, checkpoint, metadata, new_versions)
        saved, about, parent = self.storage[thread][ns][checkpoint["id"]]
        entry = Put(thread, ns, checkpoint["id"], parent, saved, about, [])
        for channel, version in new_versions.items():
            self._describe(entry, channel, version)
        await self._add(entry, view=view_of_checkpoint(checkpoint, metadata))
        return after

    def _describe(self, entry: Put, channel: str, version: Version) -> None:
        """Add the channel's value to the entry, or how it grew."""
        place = (entry.thread, entry.ns, channel)
        value, before = self.blobs[*place, version], self._newest.get(place)
        self._newest[place] = version
        old = self.blobs.get((*place, before)) if before is not None and before != version else None
        more = growth(old[1], value[1]) if old is not None and old[0] == value[0] == "msgpack" else None
        if before is None or more is None:
            entry.values.append((channel, version, value))
        else:
            entry.grown.append((channel, version, before, *more))

    async def _put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> None:
        there = config["configurable"]
        thread, ns, id = there["thread_id"], there.get("checkpoint_ns", ""), get_checkpoint_id(config)
        assert id is not None
        before = set(self.writes.get((thread, ns, id), {}))
        super().put_writes(config, writes, task_id, task_path)
        kept = self.writes[thread, ns, id]
        places = {(task_id, WRITES_IDX_MAP.get(channel, index)) for index, (channel, _) in enumerate(writes)}
        # A write that is there already stays as it was; questions, answers and errors are replaced.
        new = [
            (index, *kept[task, index][1:3])
            for task, index in sorted(places)
            if index < 0 or (task, index) not in before
        ]
        if new:
            await self._add(Writes(thread, ns, id, task_id, task_path, new), view=view_of_writes(writes, task_path))

    async def _delete_thread(self, thread_id: str) -> None:
        super().delete_thread(thread_id)
        await self._add(Deleted(thread_id), view="deleted")

    async def _add(self, entry: Entry, *, view: str) -> None:
        if (size := len(json.encode(entry))) > STEP_LIMIT_BYTES:
            most = STEP_LIMIT_BYTES // 1024 // 1024
            fix = "write large values to files in ctx.dir, and keep their names in the state"
            raise Fail(
                f"the graph's state is too large to be kept: {size / 1024 / 1024:.0f} MiB of at most {most}; {fix}"
            )
        self._adding = asyncio.create_task(self._journal.add(to_builtins(entry), view=view))
        self._adding.add_done_callback(_ignore_result)
        # Those that follow build on it, so it is added even if whoever waits is cancelled: a node has a time limit.
        await asyncio.shield(self._adding)

    async def settle(self) -> None:
        """Return when everything that was written so far is on disk."""
        if self._adding is not None:
            await asyncio.shield(self._adding)

    # ---- from other threads, without a loop

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._from_thread(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._from_thread(self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._from_thread(self._delete_thread(thread_id))

    def _from_thread(self, writing: Coroutine[Any, Any, T]) -> T:
        if self.is_on_loop():
            writing.close()
            fix = "use the async methods of the graph: ainvoke, astream, aget_state, aupdate_state"
            raise NotImplementedError(
                f"this graph runs on the event loop, and waiting there for the disk would block it; {fix}"
            )
        return asyncio.run_coroutine_threadsafe(writing, self._loop).result()


def _ignore_result(adding: asyncio.Task[None]) -> None:
    """Whoever waited for it may be gone: asyncio would report that nobody has seen its error."""
    if not adding.cancelled():
        adding.exception()


class StartsWhenSaved(AsyncCallbackHandler):
    """LangChain tells it that a node or task is about to begin, and waits until it has heard that."""

    raise_error = True
    """What cannot be kept must not begin."""

    def __init__(self, saver: JournalSaver) -> None:
        self._saver = saver

    async def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        # Beside a call that blocks the loop, LangChain tells it on another one, where waiting for ours would never end.
        if self._saver.is_on_loop():
            await self._saver.settle()

"""LangGraph's own suite for savers, on ours: as it is, and as the journal alone gives it back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import CapabilityReport

from agentrun.frameworks.langgraph.saver import JournalSaver


class ListJournal:
    """A journal in memory, of JSON text, as the item's is."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def entries(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    async def add(self, entry: Any, *, view: str) -> None:
        assert view
        await asyncio.sleep(0)
        self.lines.append(json.dumps(entry))


class Reloaded(JournalSaver):
    """Forgets everything before it reads, and fills itself from the journal."""

    async def _reload(self) -> None:
        self.storage.clear()
        self.writes.clear()
        self.blobs.clear()
        await self.load()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        await self._reload()
        return await super().aget_tuple(config)

    async def alist(self, *args: Any, **kwargs: Any) -> Any:
        await self._reload()
        async for one in super().alist(*args, **kwargs):
            yield one


@pytest.mark.parametrize("kind", [JournalSaver, Reloaded])
def test_the_saver_passes_langgraphs_own_suite(kind: type[JournalSaver]) -> None:
    @checkpointer_test(name=kind.__name__)
    async def saver() -> AsyncGenerator[JournalSaver, None]:
        yield kind(ListJournal())

    report: CapabilityReport = asyncio.run(validate(saver))
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert not failures
    assert report.passed_all_base() and report.conformance_level() == "FULL"


def test_a_method_that_would_block_the_loop_says_what_to_use_instead() -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}

    async def call(method: str, *args: Any) -> None:
        getattr(JournalSaver(ListJournal()), method)(*args)

    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("put", (config, empty_checkpoint(), {}, {})),
        ("put_writes", (config, [], "t")),
        ("delete_thread", ("1",)),
    ]
    for method, args in calls:
        with pytest.raises(NotImplementedError, match="ainvoke"):
            asyncio.run(call(method, *args))


class SlowJournal(ListJournal):
    """Entries reach it in order, when it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()

    async def add(self, entry: Any, *, view: str) -> None:
        await self.is_open.wait()
        await super().add(entry, view=view)


def checkpoint_with(values: list[str], version: str) -> Checkpoint:
    made = empty_checkpoint()
    made["channel_values"], made["channel_versions"] = {"said": values}, {"said": version}
    return made


CONFIG: RunnableConfig = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def test_a_write_that_is_cancelled_on_its_way_leaves_no_hole() -> None:
    """A node with a time limit, which a subgraph is, goes on in the same attempt."""

    async def said() -> list[str]:
        journal = SlowJournal()
        saver = JournalSaver(journal)
        cancelled = asyncio.ensure_future(saver.aput(CONFIG, checkpoint_with(["a"], "1"), {}, {"said": "1"}))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert cancelled.cancelled()
        journal.is_open.set()
        await saver.settle()
        await saver.aput(CONFIG, checkpoint_with(["a", "b"], "2"), {}, {"said": "2"})
        again = JournalSaver(journal)
        await again.load()
        found = await again.aget_tuple(CONFIG)
        assert found is not None
        return list(found.checkpoint["channel_values"]["said"])

    assert asyncio.run(said()) == ["a", "b"]


def test_a_version_that_is_written_twice_is_the_last_one_after_a_reload() -> None:
    async def said() -> list[str]:
        journal = ListJournal()
        saver = JournalSaver(journal)
        for values in (["a"], ["b", "c"]):
            await saver.aput(CONFIG, checkpoint_with(values, "1"), {}, {"said": "1"})
        again = JournalSaver(journal)
        await again.load()
        found = await again.aget_tuple(CONFIG)
        assert found is not None
        return list(found.checkpoint["channel_values"]["said"])

    assert asyncio.run(said()) == ["b", "c"]


def test_a_subgraph_on_a_loop_of_its_own_writes_from_there() -> None:
    async def said() -> Any:
        journal = SlowJournal()
        saver = JournalSaver(journal)

        def elsewhere() -> None:
            asyncio.run(saver.aput(CONFIG, checkpoint_with(["a"], "1"), {}, {"said": "1"}))

        other = asyncio.ensure_future(asyncio.to_thread(elsewhere))
        while not saver.blobs:
            await asyncio.sleep(0.001)
        settling = asyncio.ensure_future(saver.settle())
        await asyncio.sleep(0)
        journal.is_open.set()
        await asyncio.gather(other, settling)
        return len(journal.lines)

    assert asyncio.run(said()) == 1

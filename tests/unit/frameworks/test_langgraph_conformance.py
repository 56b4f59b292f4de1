"""LangGraph's own suite for savers, on ours: as it is, and as the journal alone gives it back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
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

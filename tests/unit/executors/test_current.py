"""agentrun.current(): the context where nobody hands it on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import agentrun
from agentrun.errors import Parked

if TYPE_CHECKING:
    from unit.executors.conftest import Bench


@pytest.mark.parametrize("isolation", ["loop", "thread", "process"])
def test_an_agent_without_ctx_finds_the_context_of_its_own_attempt(bench: Bench, isolation: str) -> None:
    source = """
        import agentrun

        def tool():
            return [agentrun.current().item.key, agentrun.current().key("send")]

        def agent(item):
            agentrun.current().progress("half way")
            return tool()
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            key, send = bench.output(await executor.run(bench.attempt(), bench.channel))
        assert key == "k" and len(send) == 36
        assert bench.messages == [{"type": "progress", "text": "half way"}]

    bench.run(scenario())
    with pytest.raises(RuntimeError, match="outside an attempt"):
        agentrun.current()


def run(agent: Any, *items: str, **more: Any) -> agentrun.Summary:
    return agentrun.run(agent, items=list(items), store=agentrun.MemoryStore(), output=None, **more)


def test_side_by_side_each_attempt_and_its_tasks_have_their_own(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    async def deep() -> str:
        await asyncio.sleep(0)
        return agentrun.current().item.text

    async def agent(item: agentrun.Item) -> list[str]:
        return [item.text, *await asyncio.gather(deep(), asyncio.create_task(deep()), asyncio.to_thread(shallow))]

    def shallow() -> str:
        return agentrun.current().item.text

    summary = run(agent, *"abcdef", concurrency=4, name="each")
    assert [line["output"] for line in summary.results()] == [[text] * 4 for text in "abcdef"]


def test_a_sync_function_in_a_thread_of_an_async_agent_waits_for_its_steps(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[str] = []

    def look(text: str) -> str:
        calls.append(text)
        return text.upper()

    def tool(text: str) -> Any:
        ctx = agentrun.current()
        ctx.usage(cost=0.5)
        return ctx.step("look", look, text)

    async def on_a_loop_of_its_own(text: str) -> Any:
        return await agentrun.current().step("second look", lambda: text * 2)

    async def agent(item: agentrun.Item) -> Any:
        first = await asyncio.to_thread(tool, item.text)
        second = await asyncio.to_thread(lambda: asyncio.run(on_a_loop_of_its_own(item.text)))
        if agentrun.current().attempt == 1:
            raise agentrun.Retry("again", after=0)
        return [first, second]

    summary = run(agent, "a", name="waits")
    assert [line["output"] for line in summary.results()] == [["A", "aa"]] and calls == ["a"]
    assert summary.details["usage"]["cost"] == 1.0


def test_a_question_that_is_asked_in_a_task_group_parks_the_item(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    async def ask() -> None:
        with pytest.raises(Parked):
            await agentrun.current().ask("Send?")
        await agentrun.current().ask("Send?")

    async def agent(item: agentrun.Item) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ask())

    summary = run(agent, "a", name="parks")
    assert summary.exit_code == 3 and summary.counts["waiting"] == 1

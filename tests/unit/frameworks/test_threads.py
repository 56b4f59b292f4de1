"""Frameworks run sync nodes and tools in threads: no attempt begins beside those of the one before."""

from __future__ import annotations

import asyncio
import operator
import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pydantic_ai
from langgraph.graph import START, StateGraph

import agentrun
import agentrun.frameworks.pydantic_ai as on_pydantic_ai
from agentrun.launch.launch import Launch
from unit.frameworks.bench import Bench
from unit.frameworks.pydantic_bench import Script, call, say
from unit.launch.bench import idle
from waiting import PATIENCE_SECONDS, eventually_on_loop


class Trace(TypedDict, total=False):
    id: str
    done: Annotated[list[str], operator.add]


def test_a_retry_begins_when_the_sync_nodes_of_the_last_attempt_have_returned(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    may_return = threading.Event()
    live, begun, failed = 0, 0, 0

    def in_thread(state: Trace) -> Trace:
        nonlocal live, begun
        assert live == 0
        live, begun = live + 1, begun + 1
        assert may_return.wait(PATIENCE_SECONDS)
        live -= 1
        return {"done": ["thread"]}

    async def fails_once(state: Trace) -> Trace:
        nonlocal failed
        if failed == 0:
            await eventually_on_loop(lambda: begun, "the node beside it has begun")
            failed += 1
            raise agentrun.Retry("again", after=0)
        return {"done": ["loop"]}

    async def let_return(launch: Launch) -> None:
        try:
            await eventually_on_loop(lambda: failed, "a node has failed")
            await idle()
            assert (begun, live) == (1, 1)
        finally:
            may_return.set()

    builder = StateGraph(Trace).add_node(in_thread).add_node(fails_once)
    builder.add_edge(START, "in_thread").add_edge(START, "fails_once")
    assert bench.go(builder.compile(), during=let_return).exit_code == 0
    assert (begun, live) == (2, 0) and sorted(bench.output["done"]) == ["loop", "thread"]


def test_a_retry_begins_when_the_sync_tools_of_the_last_attempt_have_returned(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    may_return = threading.Event()
    live, begun, failed = 0, 0, 0
    agent = pydantic_ai.Agent(Script([[call("look_up", "c1")], say("done")]).model, name="support")

    @agent.tool_plain
    def look_up() -> str:
        nonlocal live, begun
        assert live == 0
        live, begun = live + 1, begun + 1
        assert may_return.wait(PATIENCE_SECONDS)
        live -= 1
        return "found"

    async def support(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        nonlocal failed
        assert live == 0, "a tool of the attempt before is still running"
        running = asyncio.ensure_future(on_pydantic_ai.run(agent, "hello", ctx=ctx))
        if failed == 0:
            await eventually_on_loop(lambda: begun, "the tool has begun")
            running.cancel()
            failed += 1
            raise agentrun.Retry("again", after=0)
        return (await running).output

    async def let_return(launch: Launch) -> None:
        try:
            await eventually_on_loop(lambda: failed, "the attempt has failed")
            await idle()
            assert (begun, live) == (1, 1)
        finally:
            may_return.set()

    assert bench.go(support, during=let_return).exit_code == 0
    assert (begun, live) == (2, 0) and bench.output == "done"


def test_a_tool_of_pydantic_ai_runs_in_the_users_own_threads_if_the_agent_names_them(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from pydantic_ai.capabilities import UseThreadExecutor

    bench, seen = Bench(tmp_path), list[str]()
    with ThreadPoolExecutor(1, thread_name_prefix="their-own") as theirs:
        script = Script([[call("look_up", "c1")], say("done")])
        agent = pydantic_ai.Agent(script.model, name="support", capabilities=[UseThreadExecutor(theirs)])

        @agent.tool_plain
        def look_up() -> str:
            seen.append(threading.current_thread().name)
            return "found"

        assert bench.go(agent).exit_code == 0
    assert [name.partition("_")[0] for name in seen] == ["their-own"]

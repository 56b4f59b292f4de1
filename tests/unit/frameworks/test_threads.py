"""Frameworks run sync nodes and tools in threads: no attempt begins beside those of the one before."""

from __future__ import annotations

import operator
import threading
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

import agentrun
from agentrun.launch.launch import Launch
from unit.frameworks.bench import Bench
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

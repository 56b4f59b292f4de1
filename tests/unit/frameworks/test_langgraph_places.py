"""Steps and questions within nodes: each belongs to its node, although finished nodes are not run again."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Send

import agentrun
from agentrun.frameworks import langgraph
from unit.frameworks.bench import Bench


class Trace(TypedDict, total=False):
    id: str
    done: Annotated[list[str], operator.add]


def crash_everywhere(bench: Bench, agent: Any, calls: Counter[str], expected: Any) -> None:
    for landed in (False, True):
        for commits in range(1, 60):
            calls.clear()
            bench.clear()
            try:
                bench.crash(agent, commits=commits, landed=landed)
            except pytest.fail.Exception:
                break  # the run ended before that commit
            assert bench.go(agent).exit_code == 0
            assert bench.output == expected, (commits, landed)
            # What was in flight; nothing that was on disk.
            assert sum(calls.values()) <= len(calls) + 1, (commits, calls)
            assert "steps differ" not in bench.log
    assert commits > 8


def test_a_step_within_a_node_is_never_taken_for_that_of_another_node(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    def look(name: str) -> str:
        calls[name] += 1
        return name

    async def a(state: Trace) -> Trace:
        return {"done": [await agentrun.current().step("look", look, "a")]}

    def b(state: Trace) -> Trace:
        return {"done": [agentrun.current().step("look", look, name) for name in ("b1", "b2")]}

    async def loop(state: Trace) -> Trace:
        return {"done": [await agentrun.current().step("look", look, f"loop{len(state['done'])}")]}

    builder = StateGraph(Trace)
    builder.add_node("a", a)
    builder.add_node("b", b)
    builder.add_node("loop", loop)
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", "loop")
    builder.add_conditional_edges("loop", lambda state: "loop" if len(state["done"]) < 5 else "__end__")
    agent = builder.compile()
    crash_everywhere(bench, agent, calls, {"id": "x", "done": ["a", "b1", "b2", "loop3", "loop4"]})


def test_a_step_within_a_task_of_an_entrypoint_is_that_tasks_own(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    def look(name: str) -> str:
        calls[name] += 1
        return name

    @task
    async def work(name: str) -> str:
        return str(await agentrun.current().step("look", look, name))

    @entrypoint()
    async def flow(given: Any) -> list[str]:
        return [await work("a"), await agentrun.current().step("look", look, "own"), await work("b")]

    crash_everywhere(bench, flow, calls, ["a", "own", "b"])


def test_an_answer_never_reaches_the_same_words_of_another_node(bench: Bench) -> None:
    async def asks(state: Trace) -> Trace:
        return {"done": [(await agentrun.current().ask("Sure?")).text]}

    def asks_in_a_thread(state: Trace) -> Trace:
        return {"done": [agentrun.current().ask("Sure?").text, agentrun.current().ask("Sure?").text]}

    builder = StateGraph(Trace)
    builder.add_sequence([("a", asks), ("b", asks_in_a_thread), ("c", asks)])
    builder.add_edge(START, "a")
    graph = builder.compile()
    for text in ("one", "two", "three", "four"):
        assert bench.go(graph).exit_code == 3
        bench.answer(text=text)
    assert bench.go(graph).exit_code == 0
    assert bench.output["done"] == ["one", "two", "three", "four"]


def test_the_same_node_side_by_side_asks_for_each_of_its_tasks(bench: Bench) -> None:
    async def asks(state: Any) -> Trace:
        answer = await agentrun.current().ask("Sure?", about=state["about"])
        return {"done": [f"{state['about']} {answer.text}"]}

    builder = StateGraph(Trace)
    builder.add_node("asks", asks)
    builder.add_conditional_edges(START, lambda _: [Send("asks", {"about": name}) for name in "abc"])
    graph = builder.compile()
    while bench.go(graph).exit_code == 3:
        bench.answer(text=f"for {bench.question().details['about']}")
    assert bench.output["done"] == ["a for a", "b for b", "c for c"]


def test_a_graph_that_a_node_runs_is_remembered_as_that_nodes(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    def inner(state: Trace) -> Trace:
        calls[state["id"]] += 1
        return {"done": [f"inner {state['id']}"]}

    small = StateGraph(Trace)
    small.add_node("inner", inner)
    small.add_edge(START, "inner")

    async def a(state: Trace) -> Trace:
        return {"done": await langgraph.run(small, {"id": "a"}, ctx=agentrun.current(), output="done")}

    async def b(state: Trace) -> Trace:
        return {"done": await langgraph.run(small, {"id": "b"}, ctx=agentrun.current(), output="done")}

    builder = StateGraph(Trace)
    builder.add_sequence([a, b])
    builder.add_edge(START, "a")
    crash_everywhere(bench, builder.compile(), calls, {"id": "x", "done": ["inner a", "inner b"]})

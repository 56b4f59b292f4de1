"""Graphs as agents: what is never done twice, whatever happens to the run or to the graph."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Send

import agentrun
from agentrun import Context, Item
from agentrun.frameworks import langgraph
from unit.frameworks.bench import Bench
from unit.launch.bench import Died


class Trace(TypedDict, total=False):
    id: str
    done: Annotated[list[str], operator.add]
    answer: str


def node(name: str, calls: Counter[str]) -> RunnableLambda[Trace, Trace]:
    def run(state: Trace) -> Trace:
        calls[name] += 1
        return {"done": [name]}

    async def arun(state: Trace) -> Trace:
        await asyncio.sleep(0)
        return run(state)

    return RunnableLambda(run, arun)


def chain(calls: Counter[str], *names: str) -> StateGraph[Trace, None, Trace, Trace]:
    builder = StateGraph(Trace)
    for before, name in zip([START, *names], names, strict=False):
        builder.add_node(name, node(name, calls))
        builder.add_edge(before, name)
    return builder


def kill_everywhere(bench: Bench, agent: Any, calls: Counter[str], *, in_flight: int = 1) -> int:
    """Crash at every commit, before and after it lands, and resume; how many commits a run has."""
    for landed in (False, True):
        for commits in range(1, 60):
            calls.clear()
            bench.clear()
            try:
                bench.crash(agent, commits=commits, landed=landed)
            except pytest.fail.Exception:
                break  # the run ended before that commit
            assert bench.go(agent).exit_code == 0
            again = [name for name, count in calls.items() if count > 1]
            # What was in flight when its commit was lost; nothing that landed.
            assert len(again) <= in_flight, (commits, landed, calls)
            assert not landed or not again or in_flight > 1, (commits, calls)
    return commits


# ---- nothing twice


def test_wherever_the_run_dies_no_finished_node_runs_again(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    graph = chain(calls, "a", "b", "c").compile()
    assert kill_everywhere(bench, graph, calls) > 8
    assert bench.output["done"] == ["a", "b", "c"]


def test_a_fast_node_beside_a_slow_one_is_remembered_before_the_step_ends(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    is_stuck = True

    async def slow(state: Trace) -> Trace:
        calls["slow"] += 1
        if is_stuck:
            # Until the fast one's result is on disk: then the process dies.
            while not any(record.view.startswith("fast:") for record in bench.steps()):
                await asyncio.sleep(0)
            bench.die()
        return {"done": ["slow"]}

    builder = chain(calls, "first")
    builder.add_node("fast", node("fast", calls))
    builder.add_node("slow", slow)
    builder.add_edge("first", "fast")
    builder.add_edge("first", "slow")
    graph = builder.compile()
    with pytest.raises(Died):
        bench.go(graph)
    is_stuck = False
    assert bench.go(graph).exit_code == 0
    assert calls["first"] == calls["fast"] == 1
    assert sorted(bench.output["done"]) == ["fast", "first", "slow"]


def test_nodes_of_a_subgraph_and_of_one_that_a_plain_function_calls_are_remembered(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    inner = chain(calls, "in1", "in2").compile()
    called = chain(calls, "called1", "called2").compile()

    def calling(state: Trace) -> Trace:
        found = called.invoke({"done": []})
        return {"done": found["done"]}

    builder = StateGraph(Trace)
    builder.add_node("sub", inner)
    builder.add_node("calling", calling)
    builder.add_edge(START, "sub")
    builder.add_edge("sub", "calling")
    kill_everywhere(bench, builder.compile(), calls)
    assert bench.output["done"][-4:] == ["in1", "in2", "called1", "called2"]


def test_each_sent_task_is_remembered_on_its_own(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    async def one(state: Trace) -> Trace:
        calls[state["id"]] += 1
        return {"done": [state["id"]]}

    def spread(state: Trace) -> Sequence[Send]:
        return [Send("one", {"id": f"s{number}"}) for number in range(3)]

    builder = StateGraph(Trace)
    builder.add_node("one", one)
    builder.add_conditional_edges(START, spread, ["one"])
    kill_everywhere(bench, builder.compile(), calls, in_flight=3)
    assert bench.output["done"] == ["s0", "s1", "s2"]


def test_tasks_of_an_entrypoint_are_remembered(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    @task
    async def double(number: int) -> int:
        calls[f"double {number}"] += 1
        return 2 * number

    @entrypoint()
    async def work(record: dict[str, Any]) -> dict[str, Any]:
        one = await double(1)
        two = await double(one)
        return {"of": record["id"], "is": two}

    kill_everywhere(bench, work, calls)
    assert bench.output == {"of": "x", "is": 4}


def test_a_node_that_failed_is_tried_again_and_those_before_it_are_not(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    async def flaky(state: Trace) -> Trace:
        calls["flaky"] += 1
        if calls["flaky"] < 3:
            raise ConnectionError("the server hung up")
        return {"done": ["flaky"]}

    builder = chain(calls, "a")
    builder.add_node("flaky", flaky)
    builder.add_edge("a", "flaky")
    assert bench.go(builder.compile()).exit_code == 0
    assert calls == {"a": 1, "flaky": 3}


def test_redo_starts_a_new_thread(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    threads: list[str] = []

    async def look(state: Trace, config: RunnableConfig) -> Trace:
        threads.append(config["configurable"]["thread_id"])
        return {}

    builder = chain(calls, "a")
    builder.add_node("look", look)
    builder.add_edge("a", "look")
    graph = builder.compile()
    assert bench.go(graph).exit_code == 0
    bench.post("redo", keep_before=None, now=False)
    assert bench.go(graph).exit_code == 0
    assert calls["a"] == 2 and len(set(threads)) == 2


# ---- a graph that was changed


def test_a_graph_whose_next_node_is_gone_is_no_finished_graph(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    bench.crash(chain(calls, "a", "b", "c").compile(), commits=6, landed=True)
    assert calls["a"] == 1 and not calls["c"]
    assert bench.go(chain(calls, "a", "other", "c").compile()).exit_code == 1
    assert "the graph has changed since this item was run: b is next, and not in it" in bench.failure()
    assert bench.go(chain(calls, "a", "b", "c", "more").compile(), failed=True).exit_code == 0
    assert bench.output["done"] == ["a", "b", "c", "more"] and calls["a"] == 1


@pytest.mark.parametrize("commits", range(3, 9))
def test_renaming_a_node_never_ends_an_item_early(bench: Bench, commits: int) -> None:
    calls: Counter[str] = Counter()
    bench.crash(chain(calls, "a", "b", "c").compile(), commits=commits, landed=True)
    ended = bench.go(chain(calls, "a", "b", "renamed").compile()).exit_code
    assert ended == 1 or bench.output["done"] == ["a", "b", "renamed"]


@pytest.mark.parametrize("commits", range(3, 6))
def test_a_sent_task_whose_node_is_gone_is_missed(bench: Bench, commits: int) -> None:
    def sending(name: str) -> Any:
        def spread(state: Trace) -> Sequence[Send]:
            return [Send(name, {"id": "s"})]

        builder = chain(Counter(), "a")
        builder.add_node(name, node(name, Counter()))
        builder.add_conditional_edges("a", spread, [name])
        return builder.compile()

    bench.crash(sending("one"), commits=commits, landed=True)
    ended = bench.go(sending("two")).exit_code
    assert ended == 1 or bench.output["done"] == ["a", "two"]


# ---- several graphs in an agent of one's own


def test_runs_in_one_attempt_have_threads_of_their_own(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    one, two = chain(calls, "a", "b").compile(), chain(calls, "c").compile()

    async def agent(item: Item, ctx: Context) -> Any:
        first = await langgraph.run(one, {"done": ["1"]}, ctx=ctx)
        second = await langgraph.run(one, {"done": ["2"]}, ctx=ctx)
        sides = [langgraph.run(two, {"done": [name]}, ctx=ctx, output="done", name=name) for name in ("l", "r")]
        return [first["done"], second["done"], *await asyncio.gather(*sides)]

    assert bench.go(agent).exit_code == 0
    expected = [["1", "a", "b"], ["2", "a", "b"], ["l", "c"], ["r", "c"]]
    assert bench.output == expected
    assert calls == {"a": 2, "b": 2, "c": 2}
    names = {record.name for record in bench.steps()}
    assert names == {"langgraph", "langgraph~2", "langgraph l", "langgraph r"}
    for commits in (5, 9, 13, 17):
        bench.clear()
        bench.crash(agent, commits=commits, landed=True)
        assert bench.go(agent).exit_code == 0
        assert bench.output == expected


def test_a_run_that_is_given_another_input_continues_and_says_so(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    attempts: list[int] = []

    async def agent(item: Item, ctx: Context) -> Any:
        attempts.append(ctx.attempt)
        found = await langgraph.run(chain(calls, "a"), {"done": [f"given {len(attempts)}"]}, ctx=ctx)
        if len(attempts) == 1:
            raise agentrun.Retry("once more")
        return found["done"]

    assert bench.go(agent).exit_code == 0
    assert bench.output == ["given 1", "a"]
    assert bench.log.count("langgraph is given another input than before") == 1


def test_a_name_that_could_be_that_of_another_call_is_refused(bench: Bench) -> None:
    async def agent(item: Item, ctx: Context) -> Any:
        return await langgraph.run(chain(Counter(), "a"), {}, ctx=ctx, name="a~2")

    assert bench.go(agent).exit_code == 1
    assert "it must be without ~" in bench.failure()


def test_what_is_no_graph_is_refused_by_name(bench: Bench) -> None:
    async def agent(item: Item, ctx: Context) -> Any:
        return await langgraph.run("graph", {}, ctx=ctx)

    assert bench.go(agent).exit_code == 4
    assert bench.world.events


# ---- steps and the context inside nodes


def test_nodes_reach_the_context_on_the_loop_and_in_threads(bench: Bench) -> None:
    done: Counter[str] = Counter()

    def count(name: str) -> str:
        done[name] += 1
        return name

    async def on_loop(state: Trace) -> Trace:
        return {"done": [await agentrun.current().step("loop", count, "loop")]}

    def in_thread(state: Trace) -> Trace:
        assert threading.current_thread() is not threading.main_thread()
        return {"done": [agentrun.current().step("thread", count, "thread")]}

    async def asks(state: Trace) -> Trace:
        answer = await agentrun.current().ask("Really?")
        return {"answer": answer.text}

    builder = StateGraph(Trace)
    builder.add_sequence([on_loop, in_thread, asks])
    builder.add_edge(START, "on_loop")
    graph = builder.compile()
    assert bench.go(graph).exit_code == 3
    assert bench.question().text == "Really?"
    bench.answer(text="yes!")
    assert bench.go(graph).exit_code == 0
    assert bench.output["answer"] == "yes!" and done == {"loop": 1, "thread": 1}


# ---- checkpointers of the graph's own


class Durable(BaseCheckpointSaver[str]):
    """A saver that is not LangGraph's one in memory; it writes to one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = InMemorySaver()

    async def aget_tuple(self, config: Any) -> Any:
        return await self.inner.aget_tuple(config)

    async def aput(self, *args: Any) -> Any:
        return await self.inner.aput(*args)

    async def aput_writes(self, *args: Any) -> None:
        await self.inner.aput_writes(*args)

    def get_next_version(self, current: str | None, channel: None) -> str:
        return self.inner.get_next_version(current, channel)


def test_a_graph_keeps_a_checkpointer_that_outlives_the_process_and_the_log_says_so(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    saver = Durable()
    builder = chain(calls, "a", "b")

    async def flaky(state: Trace) -> Trace:
        calls["flaky"] += 1
        if calls["flaky"] == 1:
            raise agentrun.Retry("once more")
        return {}

    graph = builder.add_node("flaky", flaky).add_edge("b", "flaky").compile(checkpointer=saver)
    assert bench.go(graph).exit_code == 0
    assert "the graph keeps its state itself, by its Durable" in bench.log
    assert calls == {"a": 1, "b": 1, "flaky": 2}
    assert not bench.steps()
    (thread,) = saver.inner.storage
    assert len(thread) == 36


def test_a_saver_in_memory_is_replaced_by_ours(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    kill_everywhere(bench, chain(calls, "a", "b").compile(checkpointer=InMemorySaver()), calls)
    assert bench.steps()

"""Graphs as agents: what they are given, what they return, and what they used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

import agentrun
from agentrun import Context, Item
from agentrun.errors import AgentError
from agentrun.frameworks.langgraph.shapes import plain
from agentrun.job.job import ItemsSpec
from unit.frameworks.bench import Bench
from unit.frameworks.test_langgraph import Trace, chain, node

# ---- values


@dataclass
class Note:
    text: str


class Verdict(BaseModel):
    score: float
    notes: list[Note]


class Rich(TypedDict, total=False):
    id: str
    verdict: Verdict
    seen: set[str]
    where: Path


def test_a_states_own_types_come_back_as_they_were_and_without_warnings(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    kinds: list[str] = []
    is_first = True

    async def make(state: Rich) -> Rich:
        return {"verdict": Verdict(score=0.5, notes=[Note("good")]), "seen": {"a"}, "where": Path("out")}

    async def read(state: Rich) -> Rich:
        nonlocal is_first
        if is_first:
            is_first = False
            raise agentrun.Retry("once more")
        kinds.extend([type(state["verdict"]).__name__, type(state["verdict"].notes[0]).__name__])
        return {}

    builder = StateGraph(Rich)
    builder.add_sequence([make, read])
    builder.add_edge(START, "make")
    assert bench.go(builder.compile()).exit_code == 0
    assert kinds == ["Verdict", "Note"]
    assert bench.output == {
        "id": "x",
        "verdict": {"score": 0.5, "notes": [{"text": "good"}]},
        "seen": ["a"],
        "where": "out",
    }
    assert not [record for record in caplog.records if record.name.startswith("langgraph")]


def test_a_state_that_is_too_large_to_be_kept_fails_the_item_and_says_what_to_do(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    async def large(state: Trace) -> Trace:
        calls["large"] += 1
        return {"answer": "x" * 13 * 1024 * 1024}

    builder = StateGraph(Trace)
    builder.add_node("large", large)
    builder.add_edge(START, "large")
    assert bench.go(builder.compile()).exit_code == 1
    assert (
        "the graph's state is too large to be kept: 17 MiB of at most 16; write large values to files"
        in bench.failure()
    )
    assert calls["large"] == 1


# ---- inputs and outputs


class Chat(MessagesState, total=False):
    topic: str


async def echo(state: Chat) -> dict[str, list[BaseMessage]]:
    return {"messages": [AIMessage(f"{state.get('topic', 'no topic')}: {state['messages'][-1].text}", id="1")]}


def chat(state: type[Any] = MessagesState) -> Any:
    return StateGraph(state).add_node("echo", echo).add_edge(START, "echo").compile()


def test_a_record_that_does_not_fit_is_a_message_and_the_output_is_the_last_ones_text(bench: Bench) -> None:
    bench.items({"id": "x", "colour": "red"})
    assert bench.go(chat()).exit_code == 0
    assert bench.output == 'no topic: {"id":"x","colour":"red"}'


def test_a_record_that_fits_is_given_as_it_is_without_the_key_that_the_graph_does_not_know(bench: Bench) -> None:
    bench.items({"id": "x", "topic": "trees", "messages": [{"role": "user", "content": "oak?"}]})
    assert bench.go(chat(Chat)).exit_code == 0
    assert bench.output == {
        "messages": [{"role": "user", "content": "oak?"}, {"role": "assistant", "content": "trees: oak?"}],
        "topic": "trees",
    }


def test_an_item_that_fits_nothing_says_what_the_graph_takes(bench: Bench) -> None:
    bench.items({"id": "x", "colour": "red"})
    assert bench.go(chain(Counter(), "a").compile()).exit_code == 1
    assert "the item is a record with colour, id, and the graph's input has answer, done, id" in bench.failure()


def test_text_for_a_graph_without_messages_stops_the_run_and_fails_nothing(bench: Bench) -> None:
    bench.world.base.joinpath("items.txt").write_text("one\ntwo\n")
    bench.world.job = replace(bench.world.job, items=ItemsSpec(kind="lines", pattern="items.txt"))
    summary = bench.go(chain(Counter(), "a").compile())
    assert summary.exit_code == 4 and not summary.counts["failed"]


def test_the_job_chooses_the_field_of_the_state_that_is_the_output(bench: Bench) -> None:
    bench.world.job = replace(bench.world.job, graph_output="done")
    assert bench.go(chain(Counter(), "a", "b")).exit_code == 0
    assert bench.output == ["a", "b"]
    bench.world.job = replace(bench.world.job, graph_output="dome")
    with pytest.raises(AgentError, match=r'output = "dome": the graph\'s state has no such field; it has .*done'):
        bench.go(chain(Counter(), "a", "b"))


def test_a_field_that_the_graph_left_out_is_no_empty_output(bench: Bench) -> None:
    bench.world.job = replace(bench.world.job, graph_output="answer")
    assert bench.go(chain(Counter(), "a").compile()).exit_code == 1
    assert 'the graph ended without "answer"' in bench.failure()


def test_what_json_cannot_hold_says_how_to_choose_something_else(bench: Bench) -> None:
    async def agent(item: Item, ctx: Context) -> Any:
        return plain({"made": object(), "kept": [HumanMessage("hi")]})

    assert bench.go(agent).exit_code == 1
    assert '[langgraph] output = "…"' in bench.failure()


def test_a_function_without_parameters_may_return_the_graph(bench: Bench) -> None:
    def make() -> Any:
        return chain(Counter(), "a")

    assert bench.go(make).exit_code == 0
    assert bench.output == {"id": "x", "done": ["a"]}


def test_a_graph_that_cannot_be_compiled_is_told_before_the_first_item(bench: Bench) -> None:
    with pytest.raises(AgentError, match="cannot be compiled"):
        bench.go(StateGraph(Trace).add_node("a", node("a", Counter())))


# ---- usage


def talking(model: Any) -> Any:
    async def on_loop(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def in_thread(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [model.invoke(state["messages"])]}

    async def blocking(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState).add_sequence([on_loop, in_thread, blocking])
    return builder.add_edge(START, "on_loop").add_edge("blocking", END).compile()


def test_usage_is_what_the_model_was_asked_however_often_the_run_dies(bench: Bench) -> None:
    used = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
    replies: list[BaseMessage] = [AIMessage(f"reply {n}", usage_metadata=used) for n in range(100)]
    for commits in range(2, 12):
        bench.clear()
        asked = 0

        class Model(FakeMessagesListChatModel):
            def _generate(self, *args: Any, **kwargs: Any) -> Any:
                nonlocal asked
                asked += 1
                return super()._generate(*args, **kwargs)

        graph = talking(Model(responses=replies))
        bench.crash(graph, commits=commits, landed=True)
        summary = bench.go(graph)
        assert summary.exit_code == 0
        assert asked == 3
        usage = summary.usage
        assert (usage.input_tokens, usage.output_tokens, usage.requests) == (30, 9, 3)


# ---- what people see


def test_each_entry_of_the_journal_has_words_for_people(bench: Bench) -> None:
    call: Any = {"name": "search", "args": {"query": "oak", "most": 3}, "id": "c1"}

    async def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [AIMessage("I look.", tool_calls=[call])]}

    async def tools(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [ToolMessage("a tree\nwith leaves", tool_call_id="c1")]}

    async def breaks(state: MessagesState) -> dict[str, list[AnyMessage]]:
        raise agentrun.Fail("no\nmore")

    builder = StateGraph(MessagesState).add_sequence([model, tools, breaks]).add_edge(START, "model")
    assert bench.go(builder.compile()).exit_code == 1
    assert [record.view for record in bench.steps()] == [
        "begins",
        'input: messages = [{"role": "user", "content": "{\\"id\\":\\"x\\"}"}]',
        "next: model",
        'model: I look. search(query="oak", most=3)',
        "next: tools",
        "tools: a tree\nwith leaves",
        "next: breaks",
        "breaks: Fail: no",
    ]

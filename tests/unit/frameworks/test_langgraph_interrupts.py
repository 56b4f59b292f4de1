"""Interrupts: graphs that ask, and what they are answered."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from agentrun import Context, Item
from agentrun.errors import AgentError
from agentrun.frameworks import langgraph
from unit.frameworks.bench import Bench


class Asked(TypedDict, total=False):
    id: str
    said: Annotated[list[Any], operator.add]


def asking(*values: Any) -> Any:
    """A graph of one node, which asks for each of the values."""

    async def ask(state: Asked) -> Asked:
        return {"said": [interrupt(value) for value in values]}

    return StateGraph(Asked).add_node("ask", ask).add_edge(START, "ask").compile()


def said(bench: Bench) -> Any:
    return bench.output["said"]


# ---- questions


def test_an_interrupt_parks_the_item_and_its_answer_resumes_the_graph(bench: Bench) -> None:
    graph = asking("Send it?")
    assert bench.go(graph).exit_code == 3
    assert (bench.question().text, bench.question().details) == ("Send it?", {})
    assert bench.go(graph).exit_code == 3
    bench.answer(text="to Ada")
    assert bench.go(graph).exit_code == 0
    assert said(bench) == ["to Ada"]


def test_two_interrupts_of_one_node_with_the_same_words_are_two_questions(bench: Bench) -> None:
    graph = asking("And now?", "And now?", "And now?")
    for number in (1, 2, 3):
        assert bench.go(graph).exit_code == 3
        assert bench.question().n == number
        bench.answer(text=f"answer {number}")
    assert bench.go(graph).exit_code == 0
    assert said(bench) == ["answer 1", "answer 2", "answer 3"]


def five_questions(calls: Counter[str]) -> Any:
    """Twice in one node with the same words, in two nodes side by side, and in a subgraph."""

    async def twice(state: Asked) -> Asked:
        first = interrupt("The same?")
        second = interrupt("The same?")
        calls["twice"] += 1
        return {"said": [first, second]}

    def side(name: str) -> Any:
        async def run(state: Asked) -> Asked:
            answer = interrupt(f"Side {name}?")
            calls[name] += 1
            return {"said": [answer]}

        return run

    async def inside(state: Asked) -> Asked:
        answer = interrupt("Inside?")
        calls["inside"] += 1
        return {"said": [answer]}

    async def before(state: Asked) -> Asked:
        calls["before"] += 1
        return {}

    inner = StateGraph(Asked).add_sequence([before, inside]).add_edge(START, "before").compile()

    async def sub(state: Asked) -> Asked:
        return {"said": (await inner.ainvoke({"said": []}))["said"]}

    builder = StateGraph(Asked).add_node("twice", twice).add_node("left", side("left")).add_node("right", side("right"))
    builder.add_node("sub", sub).add_edge(START, "twice").add_edge("twice", "left").add_edge("twice", "right")
    return builder.add_edge(["left", "right"], "sub").compile()


ANSWERS = {"The same?": ["one", "two"], "Side left?": ["l"], "Side right?": ["r"], "Inside?": ["in"]}


def answer_everything(bench: Bench, graph: Any) -> None:
    """Answer by the words of the questions, launch after launch, until the item is done."""
    left = {text: list(answers) for text, answers in ANSWERS.items()}
    for _ in range(6):
        if bench.go(graph).exit_code == 0:
            return
        bench.answer(text=left[bench.question().text].pop(0))
    raise AssertionError("it asks too often")


def test_five_questions_of_an_item_get_their_own_answers(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    answer_everything(bench, five_questions(calls))
    assert said(bench) == ["one", "two", "l", "r", "in"]
    assert calls == dict.fromkeys(["twice", "left", "right", "before", "inside"], 1)


def test_wherever_a_launch_dies_nobody_is_asked_twice_and_every_answer_is_its_own_questions(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    graph = five_questions(calls)
    for landed in (False, True):
        for commits in (1, 2, 3, 4, 5, 6):
            bench.clear()
            calls.clear()
            left = {text: list(answers) for text, answers in ANSWERS.items()}
            exit_code, asked = 3, 0
            while exit_code == 3:
                try:
                    bench.crash(graph, commits=commits, landed=landed)
                except pytest.fail.Exception:
                    pass  # it ended before that commit
                exit_code = bench.go(graph).exit_code
                if exit_code == 3:
                    bench.answer(text=left[bench.question().text].pop(0))
                    asked += 1
            assert exit_code == 0 and asked == 5
            assert said(bench) == ["one", "two", "l", "r", "in"]
            # At most what was in flight at each death: nothing alone, if its commit landed.
            assert max(calls.values()) <= (2 if landed else 3), calls
            assert not landed or calls["twice"] == calls["before"] == calls["inside"] == 1, calls


def test_an_entrypoint_asks_and_its_tasks_are_remembered(bench: Bench) -> None:
    calls: Counter[str] = Counter()

    @task
    async def draft(name: str) -> str:
        calls[name] += 1
        return f"Dear {name}"

    @entrypoint()
    async def letter(record: dict[str, Any]) -> dict[str, Any]:
        text = await draft("Ada")
        return {"text": text, "sent": interrupt({"question": "Send it?", "draft": text})}

    assert bench.go(letter).exit_code == 3
    assert bench.question().text == "Send it?" and bench.question().details == {"draft": "Dear Ada"}
    bench.answer()
    assert bench.go(letter).exit_code == 0
    assert bench.output == {"text": "Dear Ada", "sent": True} and calls == {"Ada": 1}


def test_the_runs_of_an_agent_ask_their_own_questions(bench: Bench) -> None:
    graph = asking("Which?")

    async def agent(item: Item, ctx: Context) -> Any:
        first = await langgraph.run(graph, {"said": []}, ctx=ctx, output="said")
        return [first, await langgraph.run(graph, {"said": []}, ctx=ctx, output="said", name="second")]

    for text in ("one", "two"):
        assert bench.go(agent).exit_code == 3
        bench.answer(text=text)
    assert bench.go(agent).exit_code == 0
    assert bench.output == [["one"], ["two"]]


def test_a_graph_with_a_saver_in_memory_asks_as_any_other(bench: Bench) -> None:
    graph = asking("Really?").copy({"checkpointer": InMemorySaver()})
    assert bench.go(graph).exit_code == 3
    bench.answer()
    assert bench.go(graph).exit_code == 0
    assert said(bench) == [True]


# ---- answers


@pytest.mark.parametrize(
    ("value", "reply", "expected"),
    [
        ("Send it?", {}, True),
        ("Send it?", {"yes": False}, False),
        ("Send it?", {"yes": False, "text": "wrong customer"}, False),
        ("To whom?", {"text": "Ada"}, "Ada"),
        ({"question": "Send it?", "draft": "Dear"}, {}, True),
        ({"question": "Send it?", "draft": "Dear"}, {"text": "now"}, "now"),
        ({"question": "Send it?", "draft": "Dear"}, {"details": {"draft": "Dear Ada"}}, {"draft": "Dear Ada"}),
        ({"prompt": "How many?", "resume": 3}, {"details": {"resume": 5}}, 5),
        ({"prompt": "How many?", "resume": 3}, {}, 3),
        ({"prompt": "How many?", "resume": 3}, {"yes": False}, False),
        ({"prompt": "How many?", "resume": 3}, {"yes": False, "details": {"resume": 0}}, 0),
        ([1, 2], {"details": {"value": [3]}}, {"value": [3]}),
    ],
)
def test_an_answer_is_what_the_interrupt_returns(
    bench: Bench, value: Any, reply: dict[str, Any], expected: Any
) -> None:
    graph = asking(value)
    assert bench.go(graph).exit_code == 3
    bench.answer(**reply)
    assert bench.go(graph).exit_code == 0
    assert said(bench) == [expected]


class Choice(BaseModel):
    colour: Literal["red", "blue"]
    count: int


def test_an_answer_that_does_not_fit_its_schema_is_asked_for_again(bench: Bench) -> None:
    async def choose(state: Asked) -> Asked:
        chosen = interrupt("Which one?", response_schema=Choice)
        return {"said": [f"{chosen.count} {chosen.colour}"]}

    graph = StateGraph(Asked).add_node("choose", choose).add_edge(START, "choose").compile()
    assert bench.go(graph).exit_code == 3
    details = bench.question().details
    assert details["resume"] is None and details["resume_schema"]["properties"]["colour"]["enum"] == ["red", "blue"]
    bench.answer(details={"resume": {"colour": "green", "count": 2}})
    assert bench.go(graph).exit_code == 3
    assert bench.question().text == "Which one?\n(the last answer does not fit: colour Input should be 'red' or 'blue')"
    bench.answer(text="blue!")
    assert bench.go(graph).exit_code == 3
    bench.answer(details={"resume": {"colour": "blue", "count": 2}})
    assert bench.go(graph).exit_code == 0
    assert said(bench) == ["2 blue"]


# ---- breakpoints


def stopping(calls: Counter[str], **compiled: Any) -> Any:
    def step(name: str) -> Any:
        async def run(state: Asked) -> Asked:
            calls[name] += 1
            return {"said": [name]}

        return run

    builder = StateGraph(Asked)
    for before, name in zip([START, "draft", "send"], ["draft", "send", "log"], strict=True):
        builder.add_node(name, step(name)).add_edge(before, name)
    return builder.compile(**compiled)


@pytest.mark.parametrize(
    ("compiled", "text"),
    [
        ({"interrupt_before": ["send"]}, "Continue with send? The graph stops before it."),
        ({"interrupt_after": ["draft"]}, "Continue after draft with send? The graph stops there."),
    ],
)
def test_a_breakpoint_is_a_question_wherever_a_launch_dies(bench: Bench, compiled: Any, text: str) -> None:
    calls: Counter[str] = Counter()
    graph = stopping(calls, **compiled)
    for commits in range(3, 9):
        bench.clear()
        calls.clear()
        try:
            bench.crash(graph, commits=commits, landed=True)
        except pytest.fail.Exception:
            pass  # it asks before that commit
        assert bench.go(graph).exit_code == 3
        assert bench.question().text == text and not calls["send"]
        bench.answer()
        assert bench.go(graph).exit_code == 0
        assert calls == {"draft": 1, "send": 1, "log": 1}


def test_a_no_at_a_breakpoint_skips_the_item(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    graph = stopping(calls, interrupt_before=["send"])
    assert bench.go(graph).exit_code == 3
    bench.answer(yes=False, text="not today")
    assert bench.go(graph).exit_code == 0
    assert not bench.outputs() and not calls["send"]


def test_breakpoints_at_every_node_are_as_many_questions(bench: Bench) -> None:
    calls: Counter[str] = Counter()
    graph = stopping(calls, interrupt_before="*")
    for _ in ("draft", "send", "log"):
        assert bench.go(graph).exit_code == 3
        bench.answer()
    assert bench.go(graph).exit_code == 0
    assert said(bench) == ["draft", "send", "log"]


def test_breakpoints_of_a_subgraph_are_refused_before_the_first_item(bench: Bench) -> None:
    inner = stopping(Counter(), interrupt_before=["send"])
    with pytest.raises(AgentError, match="its subgraph sub has breakpoints"):
        bench.go(StateGraph(Asked).add_node("sub", inner).add_edge(START, "sub").compile())


def test_a_command_of_a_node_is_no_answer(bench: Bench) -> None:
    async def ask(state: Asked) -> Command[Literal["end"]]:
        return Command(update={"said": [interrupt("Where to?")]}, goto="end")

    async def end(state: Asked) -> Asked:
        return {"said": ["end"]}

    graph = StateGraph(Asked).add_node("ask", ask).add_node("end", end).add_edge(START, "ask").compile()
    assert bench.go(graph).exit_code == 3
    bench.answer(text="there")
    assert bench.go(graph).exit_code == 0
    assert said(bench) == ["there", "end"]

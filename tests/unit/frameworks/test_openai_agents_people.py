"""Approvals of the Agents SDK are questions to people: also of agents that are tools, and with crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool
from agents.tool_context import ToolContext

import agentrun
from unit.frameworks.openai_bench import Bench, Script, call, killed_at_every_commit, looking, say

REFUND = [call("refund", "r1", order="17", amount=5)]


def refunding(made: list[str], needs_approval: Any = True) -> Any:
    async def refund(context: ToolContext[Any], order: str, amount: int) -> str:
        made.append(f"refund {context.tool_call_id}")
        return f"refunded {amount} for {order}, as {context.tool_arguments}"

    return function_tool(refund, needs_approval=needs_approval)


def one_refund(made: list[str], folder: Path, **tool: Any) -> Bench:
    model = Script(made, REFUND, say("settled"))
    return Bench(folder, Agent(name="Support", model=model, tools=[refunding(made, **tool)]))


def test_a_call_that_needs_approval_waits_for_a_person(tmp_path: Path) -> None:
    made: list[str] = []
    bench = one_refund(made, tmp_path)
    assert bench.go().exit_code == 3
    question, details = bench.question()
    assert question == "Support wants to call refund. Approve?"
    assert details == {"arguments": {"order": "17", "amount": 5}}
    assert made == ["model support#0"]
    bench.answer()
    assert bench.go().exit_code == 0, bench.causes
    assert made == ["model support#0", "refund r1", "model support#1"]
    assert bench.outputs == ["settled"]


def test_a_refusal_reaches_the_model_in_the_persons_words(tmp_path: Path) -> None:
    made: list[str] = []
    bench = one_refund(made, tmp_path)
    assert bench.go().exit_code == 3
    bench.answer(yes=False, text="not without a receipt")
    assert bench.go().exit_code == 0, bench.causes
    assert made == ["model support#0", "model support#1"]
    assert bench.agent.model.told("r1") == "not without a receipt"


async def is_large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
    return bool(arguments["amount"] > 3)


@pytest.mark.parametrize("needs_approval", [True, is_large])
def test_the_tool_is_called_with_the_arguments_as_the_person_edited_them(needs_approval: Any, tmp_path: Path) -> None:
    made: list[str] = []
    bench = one_refund(made, tmp_path, needs_approval=needs_approval)
    assert bench.go().exit_code == 3
    bench.answer(arguments={"order": "17", "amount": 2})
    assert bench.go().exit_code == 0, bench.causes
    assert bench.agent.model.told("r1") == 'refunded 2 for 17, as {"order": "17", "amount": 2}'


def test_arguments_that_a_policy_must_not_see_unchecked_are_asked_about(tmp_path: Path) -> None:
    """As without us: the SDK cannot tell what the default would be, so a person decides."""

    async def is_never_needed(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return False

    @function_tool(needs_approval=is_never_needed, strict_mode=False)
    async def refund(order: str, amount: int = 1000) -> str:
        return "refunded"

    model = Script([], [call("refund", "r1", order="17")], say("settled"))
    assert Bench(tmp_path, Agent(name="Support", model=model, tools=[refund])).go().exit_code == 3


def test_several_calls_of_one_turn_are_a_question_each(tmp_path: Path) -> None:
    made: list[str] = []
    turn = [
        call("refund", "r1", order="17", amount=5),
        call("look", "c1", what="a"),
        call("refund", "r2", order="18", amount=6),
    ]
    model = Script(made, turn, say("settled"))
    bench = Bench(tmp_path, Agent(name="Support", model=model, tools=[refunding(made), looking(made)]))
    assert bench.go().exit_code == 3
    assert bench.question()[1]["arguments"]["order"] == "17"
    bench.answer()
    assert bench.go().exit_code == 3
    assert bench.question()[1]["arguments"]["order"] == "18"
    bench.answer(yes=False, text="not that one")
    assert bench.go().exit_code == 0, bench.causes
    assert sorted(made) == ["look c1", "model support#0", "model support#1", "refund r1"]
    assert model.told("r2") == "not that one"


def with_helper(made: list[str], folder: Path, *, helper_needs: bool = False) -> Bench:
    """An agent that asks another one twice side by side, which calls a tool, and one that needs approval."""
    turns = [call("look", "n1", what="a")], [call("refund", "r1", order="17", amount=5)], say("refund is through")
    helper = Agent(name="Helper", model=Script(made, *turns, name="helper"), tools=[looking(made), refunding(made)])
    tool = helper.as_tool("help", "Ask the helper.", needs_approval=helper_needs)
    model = Script(made, [call("help", "h1", input="please")], say("settled"))
    return Bench(folder, Agent(name="Support", model=model, tools=[tool]))


@pytest.mark.parametrize("landed", [False, True])
def test_an_approval_in_a_nested_agent_with_a_crash_at_every_commit(landed: bool, tmp_path: Path) -> None:
    again = killed_at_every_commit(lambda made: with_helper(made, tmp_path), landed=landed, answer=Bench.answer)
    assert bool(again) is not landed


def test_nested_steps_and_questions_are_named_after_the_outer_call(tmp_path: Path) -> None:
    made: list[str] = []
    bench = with_helper(made, tmp_path, helper_needs=True)
    assert bench.go().exit_code == 3
    assert bench.question() == ("Support wants to call help. Approve?", {"arguments": {"input": "please"}})
    bench.answer()
    assert bench.go().exit_code == 3
    assert bench.question()[0] == "Helper wants to call refund. Approve?"
    bench.answer(arguments={"order": "17", "amount": 1})
    assert bench.go().exit_code == 0, bench.causes
    assert list(bench.views) == [
        "model Support",
        "help h1/model Helper",
        "help h1/look n1",
        "help h1/model Helper#1",
        "help h1/refund r1",
        "help h1/model Helper#2",
        "model Support#1",
    ]
    assert bench.views["help h1/refund r1"].startswith("refunded 1 for 17")
    assert bench.agent.model.told("h1") == "refund is through"


@pytest.mark.parametrize("amounts", [(5, 6), (5, 5)])
def test_calls_of_two_runs_with_the_same_id_are_a_question_each(amounts: tuple[int, int], tmp_path: Path) -> None:
    """Some servers number the calls of each conversation: call_0, call_1, …."""
    made: list[str] = []
    refunds = []
    for name, amount in zip(["first", "second"], amounts, strict=True):
        turns = [call("refund", "call_0", order=name, amount=amount)], say(f"{name} is through")
        helper = Agent(name=name, model=Script(made, *turns, name=name), tools=[refunding(made)])
        refunds.append(helper.as_tool(name, "Refund it."))
    turn = [call("first", "call_0", input=""), call("second", "call_1", input=""), call("look", "call_2", what="a")]
    model = Script(made, turn, say("settled"))
    bench = Bench(tmp_path, Agent(name="Support", model=model, tools=[*refunds, looking(made)]))
    assert bench.go().exit_code == 3
    assert bench.question()[1] == {"arguments": {"order": "first", "amount": amounts[0]}}
    bench.answer(arguments={"order": "first", "amount": 1})
    assert bench.go().exit_code == 3
    assert bench.question()[1] == {"arguments": {"order": "second", "amount": amounts[1]}}
    bench.answer(yes=False, text="not that one")
    assert bench.go().exit_code == 0, bench.causes
    assert made.count("refund call_0") == 1
    assert bench.views["first call_0/refund call_0"].startswith("refunded 1 for first")


def test_edited_arguments_are_not_those_of_a_later_call_of_another_run(tmp_path: Path) -> None:
    made: list[str] = []
    helping = Script(made, [call("refund", "call_1", order="17", amount=5)], say("refunded"), name="helper")
    helper = Agent(name="Helper", model=helping, tools=[refunding(made)]).as_tool("help", "Ask the helper.")
    model = Script(made, [call("help", "call_0", input="")], [call("look", "call_1", what="a")], say("settled"))
    bench = Bench(tmp_path, Agent(name="Support", model=model, tools=[helper, looking(made)]))
    assert bench.go().exit_code == 3
    bench.answer(arguments={"order": "17", "amount": 1})
    assert bench.go().exit_code == 0, bench.causes
    assert bench.views["help call_0/refund call_1"].startswith("refunded 1 for 17")
    assert model.told("call_1") == "saw a"


def test_a_tool_may_ask_people_itself(tmp_path: Path) -> None:
    made: list[str] = []

    @function_tool
    def check(what: str) -> str:
        """A sync function, which the SDK calls in a thread."""
        made.append("check")
        answer = agentrun.current().ask("Is it right?", what=what)
        return f"{answer['what']}: {bool(answer)}"

    @function_tool
    async def weigh(what: str) -> str:
        made.append("weigh")
        answer = await agentrun.current().ask("Is it heavy?", what=what)
        return f"{bool(answer)}"

    model = Script([], [call("check", "c1", what="a")], [call("weigh", "c2", what="b")], say("done"))
    bench = Bench(tmp_path, Agent(name="Support", model=model, tools=[check, weigh]))
    assert bench.go().exit_code == 3
    assert bench.question() == ("Is it right?", {"what": "a"})
    bench.answer(what="b")
    assert bench.go().exit_code == 3
    bench.answer(yes=False)
    assert bench.go().exit_code == 0, bench.causes
    assert (model.told("c1"), model.told("c2")) == ("b: True", "False")
    assert made == ["check", "check", "weigh", "weigh"]


def test_steps_and_questions_of_the_same_words_belong_to_their_tool_calls(tmp_path: Path) -> None:
    @function_tool
    def check(what: str) -> str:
        seen = agentrun.current().step("look", lambda: f"saw {what}")
        return f"{seen}, {agentrun.current().ask('Is it right?').text}"

    calls = [[call("check", "c1", what="a")], [call("check", "c2", what="b")]]
    model = Script([], *calls, say("done"))
    bench = Bench(tmp_path, Agent(name="Support", model=model, tools=[check]))
    for text in ("one", "two"):
        assert bench.go().exit_code == 3
        bench.answer(text=text)
    assert bench.go().exit_code == 0, bench.causes
    assert (model.told("c1"), model.told("c2")) == ("saw a, one", "saw b, two")

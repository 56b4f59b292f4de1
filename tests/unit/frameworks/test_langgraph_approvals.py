"""LangChain's agents with HumanInTheLoopMiddleware: tool calls that a person must approve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.middleware.human_in_the_loop import DecisionType, InterruptMode, InterruptOnConfig
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable

from unit.frameworks.bench import Bench

EVERY: list[DecisionType] = ["approve", "edit", "reject"]


class Scripted(BaseChatModel):
    """Calls its tools once, and then says what they returned."""

    calls: list[ToolCall]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        results = [str(one.text) for one in messages if isinstance(one, ToolMessage)]
        message = AIMessage(" / ".join(results)) if results else AIMessage("", tool_calls=self.calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Mailer:
    """A tool, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def agent(
        self, *to: str, mode: InterruptMode = "batched", allowed: Sequence[DecisionType] = EVERY, description: str = ""
    ) -> Any:
        def send_mail(to: str, body: str) -> str:
            """Send a mail."""
            self.sent.append((to, body))
            return f"sent to {to}"

        calls = [ToolCall(name="send_mail", args={"to": one, "body": "Hi"}, id=f"c{one}") for one in to]
        rule: InterruptOnConfig = {"allowed_decisions": list(allowed)}
        if description:
            rule["description"] = description
        middleware: Any = HumanInTheLoopMiddleware({"send_mail": rule}, interrupt_mode=mode)
        return create_agent(Scripted(calls=calls), [send_mail], middleware=[middleware])


both_modes = pytest.mark.parametrize("mode", ["batched", "per_call"])


def asked(bench: Bench, agent: Any) -> None:
    bench.items({"id": "x", "text": "mail Ada"})
    assert bench.go(agent).exit_code == 3


@both_modes
def test_a_yes_approves_the_call(bench: Bench, mode: InterruptMode) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", mode=mode)
    asked(bench, agent)
    assert bench.question().text == "Approve send_mail?"
    assert bench.question().details == {"to": "ada", "body": "Hi"}
    assert not mailer.sent
    bench.answer()
    assert bench.go(agent).exit_code == 0
    assert mailer.sent == [("ada", "Hi")] and bench.output == "sent to ada"


@both_modes
def test_a_no_rejects_it_with_the_words(bench: Bench, mode: InterruptMode) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", mode=mode)
    asked(bench, agent)
    bench.answer(yes=False, text="she has left")
    assert bench.go(agent).exit_code == 0
    assert not mailer.sent and "she has left" in bench.output


@both_modes
def test_changed_arguments_are_an_edit(bench: Bench, mode: InterruptMode) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", mode=mode)
    asked(bench, agent)
    bench.answer(details={"body": "Dear Ada"})
    assert bench.go(agent).exit_code == 0
    assert mailer.sent == [("ada", "Dear Ada")]


def test_the_calls_of_a_turn_are_one_question_with_the_arguments_of_each(bench: Bench) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", "bob")
    asked(bench, agent)
    assert bench.question().text == "Approve send_mail, send_mail?"
    bench.answer(details={"2 send_mail": {"to": "bob", "body": "Dear Bob"}})
    assert bench.go(agent).exit_code == 0
    assert sorted(mailer.sent) == [("ada", "Hi"), ("bob", "Dear Bob")]


def test_calls_that_are_asked_for_one_by_one_have_answers_of_their_own(bench: Bench) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", "bob", mode="per_call")
    asked(bench, agent)
    refused = bench.question().details["to"]
    bench.answer(yes=False, text="no")
    assert bench.go(agent).exit_code == 3
    approved = bench.question().details["to"]
    bench.answer()
    assert bench.go(agent).exit_code == 0
    assert {refused, approved} == {"ada", "bob"} and mailer.sent == [(approved, "Hi")]


@both_modes
def test_where_only_an_answer_is_allowed_the_words_are_the_tools_result(bench: Bench, mode: InterruptMode) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", mode=mode, allowed=["respond"])
    asked(bench, agent)
    bench.answer(text="I rang her")
    assert bench.go(agent).exit_code == 0
    assert not mailer.sent and bench.output == "I rang her"


@both_modes
def test_a_decision_that_is_not_allowed_is_asked_for_again(bench: Bench, mode: InterruptMode) -> None:
    mailer = Mailer()
    agent = mailer.agent("ada", mode=mode, allowed=["approve", "reject"])
    asked(bench, agent)
    bench.answer(details={"body": "Dear Ada"})
    assert bench.go(agent).exit_code == 3
    again = "Approve send_mail?\n(the last answer does not fit: send_mail allows approve, reject)"
    assert bench.question().text == again and not mailer.sent
    bench.answer()
    assert bench.go(agent).exit_code == 0
    assert mailer.sent == [("ada", "Hi")]


def test_the_agents_own_words_about_a_call_are_part_of_the_question(bench: Bench) -> None:
    asked(bench, Mailer().agent("ada", description="Mail leaves the house."))
    assert bench.question().text == "Approve send_mail?\nMail leaves the house."

"""Agents of pydantic-ai and people: approvals, calls that are made elsewhere, and how an item ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    InstrumentationSettings,
    RunContext,
)
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.usage import UsageLimits

import agentrun
from agentrun.frameworks import pydantic_ai
from unit.frameworks.pydantic_bench import Bench, Script, Turn, call, go_with_deaths, returned, say

AGAIN = 7
"""An amount whose call has an id that the model has given before."""
REFUND: list[Turn] = [[call("refund", "c1", amount=5)], say("done")]


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refunding(script: Script, **more: Any) -> Agent[object, Any]:
    agent: Agent[object, Any] = Agent(script.model, name="support", **more)

    @agent.tool(requires_approval=True)
    async def refund(context: RunContext[object], amount: int) -> str:
        script.note("refund", context.tool_call_id, n=int(amount == AGAIN))
        return f"refunded {amount}"

    return agent


@pytest.mark.parametrize("output_type", [str, [str, DeferredToolRequests]])
def test_a_tool_that_needs_approval_asks_and_its_item_waits(tmp_path: Path, output_type: Any) -> None:
    script = Script(REFUND)
    bench = Bench(tmp_path, refunding(script, output_type=output_type))
    assert bench.go(retries=3).exit_code == 3
    assert bench.questions() == [("Approve refund?", {"args": {"amount": 5}})]
    assert script.made == ["support: model#0"], "the model was paid once"
    bench.answer()
    assert bench.go().exit_code == 0
    assert bench.outputs() == ["done"] and returned(script.last) == {"c1": "refunded 5"}
    assert script.made == ["support: model#0", "support: refund c1#0", "support: model#1"]


def test_a_denied_call_is_not_made_and_the_model_is_told_why(tmp_path: Path) -> None:
    script = Script(REFUND)
    bench = Bench(tmp_path, refunding(script))
    bench.go()
    bench.answer(yes=False, text="too much")
    assert bench.go().exit_code == 0
    assert "support: refund c1#0" not in script.made and returned(script.last) == {"c1": "too much"}


def test_an_approved_call_has_the_arguments_as_the_person_edited_them(tmp_path: Path) -> None:
    script = Script(REFUND)
    bench = Bench(tmp_path, refunding(script))
    bench.go()
    bench.answer(args={"amount": 3})
    assert bench.go().exit_code == 0
    assert returned(script.last) == {"c1": "refunded 3"}


@pytest.mark.parametrize("landed", [False, True])
def test_approvals_survive_deaths_and_each_answer_is_its_own_calls(tmp_path: Path, landed: bool) -> None:
    turns: list[Turn] = [
        [call("refund", "c1", amount=1), call("refund", "c2", amount=2)],
        [call("refund", "c1", amount=AGAIN)],
    ]
    script = Script([*turns, say("done")])
    bench = Bench(tmp_path, refunding(script))
    asked: list[int] = []

    def answer() -> bool:
        if bench.ended.exit_code != 3:
            return False
        ((_, details),) = bench.questions()
        asked.append(details["args"]["amount"])
        bench.answer(yes=asked[-1] != 2, text="no" if asked[-1] == 2 else "")
        return True

    # The model gives the id c1 twice, as some servers do: it is asked about again, and remembered apart.
    go_with_deaths(bench, script.made, landed=landed, go_on=answer)
    assert asked == [1, 2, AGAIN]
    assert returned(script.last) == {"c1": f"refunded {AGAIN}", "c2": "no"}
    assert bench.outputs() == ["done"]


def test_a_tool_may_ask_for_approval_itself(tmp_path: Path) -> None:
    script = Script(REFUND)
    agent = Agent(script.model, name="support")

    @agent.tool
    async def refund(context: RunContext[object], amount: int) -> str:
        if amount > 3 and not context.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 3})
        return f"refunded {amount}"

    bench = Bench(tmp_path, agent)
    assert bench.go().exit_code == 3
    assert bench.questions() == [("Approve refund?", {"args": {"amount": 5}, "metadata": {"limit": 3}})]
    bench.answer()
    assert bench.go().exit_code == 0
    assert returned(script.last) == {"c1": "refunded 5"}


@pytest.mark.parametrize(
    ("said", "result"),
    [({"text": "sunny"}, "sunny"), ({"result": {"sky": "blue"}}, {"sky": "blue"})],
)
@pytest.mark.parametrize("landed", [False, True])
def test_the_answer_is_the_result_of_a_call_that_is_made_elsewhere(
    tmp_path: Path, said: dict[str, Any], result: Any, landed: bool
) -> None:
    script = Script([[call("weather", "c1", city="Bonn")], say("done")])
    agent = Agent(script.model, name="support")

    @agent.tool
    def weather(context: RunContext[object], city: str) -> str:
        script.note("weather", context.tool_call_id)
        raise CallDeferred

    bench = Bench(tmp_path, agent)

    def answer() -> bool:
        if bench.ended.exit_code != 3:
            return False
        assert bench.questions() == [("What does weather return?", {"args": {"city": "Bonn"}, "result": None})]
        bench.answer(**said)
        return True

    go_with_deaths(bench, script.made, landed=landed, go_on=answer)
    assert returned(script.last) == {"c1": result}


def test_a_refused_call_goes_back_to_the_model(tmp_path: Path) -> None:
    script = Script([[call("weather", "c1", city="Bonn")], say("done")])
    agent = Agent(script.model, name="support")

    @agent.tool_plain
    def weather(city: str) -> str:
        raise CallDeferred

    bench = Bench(tmp_path, agent)
    bench.go()
    bench.answer(yes=False, text="not today")
    assert bench.go().exit_code == 0
    assert "not today" in str(script.last[-1].parts)


@pytest.mark.parametrize("instrument", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_may_ask_a_person_itself(
    tmp_path: Path, is_async: bool, instrument: bool, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script([[call("decide", "c1"), call("other", "c2")], say("done")])
    capabilities = [Instrumentation(InstrumentationSettings())] if instrument else []
    agent = Agent(script.model, name="support", capabilities=capabilities)

    if is_async:

        @agent.tool_plain
        async def decide() -> str:
            return str((await agentrun.current().ask("Really?")).text)

    else:

        @agent.tool_plain(name="decide")
        def decide_in_a_thread() -> str:
            return str(agentrun.current().ask("Really?").text)

    @agent.tool_plain
    async def other() -> str:
        return "other"

    bench = Bench(tmp_path, agent)
    assert bench.go().exit_code == 3
    assert bench.questions() == [("Really?", {})]
    bench.answer(text="sure")
    assert bench.go().exit_code == 0
    assert returned(script.last) == {"c1": "sure", "c2": "other"}
    assert script.made.count("support: model#0") == 1
    assert caplog.records == []


@pytest.mark.parametrize(
    ("signal", "counts", "exit_code"),
    [
        (agentrun.Fail("no good"), {"failed": 1}, 1),
        (agentrun.Skip("not needed"), {"skipped": 1}, 0),
        (agentrun.Retry("later"), {"failed": 1}, 1),
        (agentrun.Stop("enough"), {}, 4),
    ],
)
def test_what_a_tool_raises_to_end_its_item_reaches_the_runner(
    tmp_path: Path, signal: Exception, counts: dict[str, int], exit_code: int
) -> None:
    script = Script([[call("check", "c1")], say("done")])
    agent = Agent(script.model, name="support")

    @agent.tool
    def check(context: RunContext[object]) -> str:
        script.note("check", context.tool_call_id)
        raise signal

    bench = Bench(tmp_path, agent)
    summary = bench.go(retries=2)
    assert summary.exit_code == exit_code
    assert {name: count for name, count in summary.counts.items() if count and name != "pending"} == counts
    assert script.made.count("support: model#0") == 1
    assert script.made.count("support: check c1#0") == (3 if isinstance(signal, agentrun.Retry) else 1)


@pytest.mark.parametrize("asks", [False, True])
def test_a_call_beside_one_that_fails_or_asks_comes_to_its_end_and_is_not_made_again(
    asks: bool, tmp_path: Path
) -> None:
    script = Script([[call("send", "c1"), call("check", "c2")], say("done")])
    agent = Agent(script.model, name="support")
    made: list[str] = []

    @agent.tool_plain
    async def send() -> str:
        made.append("send")
        while "check" not in made:
            await asyncio.sleep(0)
        for _ in range(200):  # in which it would be cancelled
            await asyncio.sleep(0)
        return "sent"

    @agent.tool_plain
    async def check() -> str:
        made.append("check")
        while "send" not in made:
            await asyncio.sleep(0)
        if asks:
            await agentrun.current().ask("Is it right?")
        elif made.count("check") == 1:
            raise ConnectionError("no answer")
        return "right"

    bench = Bench(tmp_path, agent)
    if asks:
        assert bench.go().exit_code == 3
        bench.answer()
    assert bench.go(retries=1).exit_code == 0, bench.causes()
    assert made.count("send") == 1
    assert made.count("check") == 2


def test_a_limit_of_usage_fails_the_item_at_once(tmp_path: Path) -> None:
    script = Script([[call("again", "c1")], say("never")])
    agent = Agent(script.model, name="support")

    @agent.tool_plain
    def again() -> str:
        return "more"

    async def own(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        return (await pydantic_ai.run(agent, "x", ctx=ctx, usage_limits=UsageLimits(request_limit=1))).output

    bench = Bench(tmp_path, own)
    assert bench.go(retries=3).exit_code == 1
    assert script.made == ["support: model#0"]
    assert "UsageLimitExceeded" in bench.causes()[0]


def test_a_result_that_is_no_json_fails_the_item_at_once(tmp_path: Path) -> None:
    script = Script([[call("make", "c1")], say("never")])
    agent = Agent(script.model, name="support")

    @agent.tool
    def make(context: RunContext[object]) -> Any:
        script.note("make", context.tool_call_id)
        return object()

    bench = Bench(tmp_path, agent)
    assert bench.go(retries=3).exit_code == 1
    assert script.made == ["support: model#0", "support: make c1#0"]
    assert "cannot be kept as JSON" in bench.causes()[0]


def test_a_missing_key_stops_the_run_and_fails_no_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    bench = Bench(tmp_path, Agent("openai:gpt-4o", name="support", defer_model_check=True), items=["a", "b"])
    assert bench.go().exit_code == 4
    assert bench.causes() == []


def test_what_cannot_be_run_is_told_before_the_first_item(tmp_path: Path) -> None:
    class Deps:
        pass

    script = Script([say("x")])
    cases: list[tuple[Agent[Any, Any], str]] = [
        (Agent(), "needs to have a `model`"),
        (Agent(script.model, deps_type=Deps), r"needs deps \(.*Deps\).*deps=…"),
    ]
    dynamic = Agent(script.model)

    @dynamic.toolset
    def none(context: RunContext[object]) -> None:
        return None

    cases.append((dynamic, "unique `id`"))
    for agent, words in cases:
        with pytest.raises(agentrun.AgentError, match=words):
            Bench(tmp_path, agent).go()
    assert script.made == []


@pytest.mark.parametrize("kind", [agentrun.Context, agentrun.Item])
def test_an_agent_may_have_the_context_or_the_item_as_its_deps(tmp_path: Path, kind: type) -> None:
    script = Script([[call("who", "c1")], say("done")])
    agent: Agent[Any, str] = Agent(script.model, deps_type=kind)

    @agent.tool
    def who(context: RunContext[Any]) -> str:
        return str(context.deps.item.text if kind is agentrun.Context else context.deps.text)

    bench = Bench(tmp_path, agent)
    assert bench.go().exit_code == 0
    assert returned(script.last) == {"c1": "hello"}


def test_steps_and_questions_of_the_same_words_belong_to_their_tool_calls(tmp_path: Path) -> None:
    script = Script([[call("check", "c1", what="a")], [call("check", "c2", what="b")], say("done")])
    agent = Agent(script.model, name="support")

    @agent.tool_plain
    def check(what: str) -> str:
        seen = agentrun.current().step("look", lambda: f"saw {what}")
        return f"{seen}, {agentrun.current().ask('Is it right?').text}"

    bench = Bench(tmp_path, agent)
    for text in ("one", "two"):
        assert bench.go().exit_code == 3
        bench.answer(text=text)
    assert bench.go().exit_code == 0
    assert returned(script.last) == {"c1": "saw a, one", "c2": "saw b, two"}

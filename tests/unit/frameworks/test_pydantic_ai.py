"""Agents of pydantic-ai: what is remembered, and that a run with them is like any other."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage, UsageLimits

import agentrun
from agentrun.frameworks import pydantic_ai
from unit.frameworks.pydantic_bench import Bench, Script, Turn, call, go_with_deaths, returned, say
from waiting import PATIENCE_SECONDS

SEARCHES: list[Turn] = [
    [call("search", "c1", query="a"), call("search", "c2", query="b")],
    [call("search", "c3", query="a")],
    say("found"),
]


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def searching(script: Script, **more: Any) -> Agent[object, Any]:
    """An agent with one tool, whose second call is slower than those after it."""
    agent = Agent(script.model, name="support", **more)

    @agent.tool
    async def search(context: RunContext[object], query: str) -> str:
        for _ in range(30 if query == "a" else 0):
            await asyncio.sleep(0)
        script.note("search", context.tool_call_id)
        return f"about {query}"

    return agent


@pytest.mark.parametrize("landed", [False, True])
def test_no_finished_call_is_made_again_wherever_the_runner_dies(tmp_path: Path, landed: bool) -> None:
    script = Script(SEARCHES)
    bench = Bench(tmp_path, searching(script))
    made = go_with_deaths(bench, script.made, landed=landed)
    assert bench.outputs() == ["found"]
    names = {"support: model#0", "support: model#1", "support: model#2"}
    assert set(made) == names | {f"support: search c{number}#0" for number in (1, 2, 3)}
    assert returned(script.last) == {"c1": "about a", "c2": "about b", "c3": "about a"}


def test_usage_is_reported_once_for_each_response_and_not_when_it_is_remembered(tmp_path: Path) -> None:
    script = Script(SEARCHES)
    bench = Bench(tmp_path, searching(script))
    go_with_deaths(bench, script.made, landed=True)
    usage = bench.ended.usage
    assert (usage.input_tokens, usage.output_tokens) == (100 + 101 + 102, 30)


def test_a_response_without_usage_is_not_guessed(tmp_path: Path) -> None:
    from pydantic_ai.models import Model, ModelRequestParameters

    class Mute(Model):
        model_name = "mute"
        system = "mute"

        async def request(
            self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
        ) -> ModelResponse:
            return ModelResponse(say("hm"), usage=RequestUsage(unmeasured_requests=1))

    bench = Bench(tmp_path, Agent(Mute()))
    summary = bench.go()
    assert summary.exit_code == 0 and summary.usage.requests == 0


def test_people_see_what_was_said_and_called(tmp_path: Path) -> None:
    script = Script([[*say("let me see"), call("search", "c1", query="Ü", top=3)], say("done")])
    agent = Agent(script.model, name="support")

    @agent.tool_plain
    def search(query: str, top: int) -> dict[str, int]:
        return {query: top}

    bench = Bench(tmp_path, agent)
    assert bench.crash(landed=True, steps=9)
    assert bench.views() == {
        "support: model#0": 'let me see\nsearch(query="Ü", top=3)',
        "support: search c1#0": '{"Ü": 3}',
        "support: model#1": "done",
    }


def test_a_call_whose_arguments_are_no_json_goes_back_to_the_model(tmp_path: Path) -> None:
    bad = ToolCallPart("search", '{"query": ', tool_call_id="c1")
    script = Script([[bad], [call("search", "c2", query="b")], say("found")])
    bench = Bench(tmp_path, searching(script))
    assert bench.go().exit_code == 0 and bench.outputs() == ["found"]


def test_the_users_agent_is_not_changed(tmp_path: Path) -> None:
    script = Script([say("hi")])
    agent = Agent(script.model)
    before = dict(vars(agent))
    assert Bench(tmp_path, agent).go().exit_code == 0
    assert vars(agent) == before
    assert agent.name is None


def test_runs_of_one_attempt_do_not_mix(tmp_path: Path) -> None:
    first, second = Script([say("one")], name="writer"), Script([say("two")], name="writer~2")
    third = Script([say("three")], name="last")
    agents = [Agent(script.model, name="writer") for script in (first, second, third)]
    made: list[str] = []
    for script in (first, second, third):
        script.made = made

    async def own(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        results = [await pydantic_ai.run(agent, item.text, ctx=ctx) for agent in agents[:2]]
        results.append(await pydantic_ai.run(agents[2], item.text, ctx=ctx, name="last"))
        return [result.output for result in results]

    bench = Bench(tmp_path, own)
    counts = go_with_deaths(bench, made, landed=True)
    assert bench.outputs() == [["one", "two", "three"]]
    assert counts == {"writer: model#0": 1, "writer~2: model#0": 1, "last: model#0": 1}


@pytest.mark.parametrize("landed", [False, True])
def test_an_agent_within_a_tool_is_remembered_by_itself(tmp_path: Path, landed: bool) -> None:
    outer = Script([[call("ask", "c1", about="x"), call("ask", "c2", about="y")], say("all")])
    made = outer.made
    agent = Agent(outer.model, name="support")

    @agent.tool
    async def ask(context: RunContext[object], about: str) -> str:
        step = f"support: ask {context.tool_call_id}"
        inner = Script([[call("look", "c1")], say(about)], name=f"{step}/expert", made=made)
        expert = Agent(inner.model, name="expert")

        @expert.tool
        async def look(inside: RunContext[object]) -> str:
            inner.note("look", inside.tool_call_id)
            return "seen"

        result = await pydantic_ai.run(expert, about, ctx=agentrun.current())
        made.append(f"{step}#0")
        return str(result.output)

    bench = Bench(tmp_path, agent)
    counts = go_with_deaths(bench, made, landed=landed)
    assert bench.outputs() == ["all"]
    assert returned(outer.last) == {"c1": "x", "c2": "y"}
    assert "support: ask c2/expert: look c1#0" in counts
    assert len(counts) == 2 + 2 + 2 * 3


def test_what_people_expect_of_run_can_be_given(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.update(history=len(messages), settings=info.model_settings, instructions=info.instructions)
        return ModelResponse([call("final_result", "c1", colour="red")])

    class Colour(BaseModel):
        colour: str

    agent = Agent(TestModel(), deps_type=str)

    @agent.instructions
    def whose(context: RunContext[str]) -> str:
        return f"for {context.deps}"

    async def own(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        result = await pydantic_ai.run(
            agent,
            item.text,
            ctx=ctx,
            deps="ann",
            model=FunctionModel(answer),
            model_settings=ModelSettings(temperature=0.5),
            message_history=[ModelRequest([UserPromptPart("before")]), ModelResponse(say("said"))],
            usage_limits=UsageLimits(request_limit=3),
            output_type=Colour,
            instructions="be brief",
        )
        return result.output.colour

    bench = Bench(tmp_path, own)
    assert bench.go().exit_code == 0 and bench.outputs() == ["red"]
    assert seen["history"] == 3 and seen["settings"]["temperature"] == 0.5
    assert "for ann" in seen["instructions"] and "be brief" in seen["instructions"]


@pytest.mark.parametrize(("own", "expected"), [(None, 0), (ModelSettings(max_retries=5), 5)])
def test_the_sdk_does_not_retry_unless_the_user_says_so(
    tmp_path: Path, own: ModelSettings | None, expected: int
) -> None:
    seen: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((info.model_settings or {}).get("max_retries"))
        return ModelResponse(say("x"))

    async def given(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        return (await pydantic_ai.run(Agent(FunctionModel(answer)), "x", ctx=ctx, model_settings=own)).output

    agents = [Agent(FunctionModel(answer), model_settings=own), Agent(FunctionModel(answer, settings=own)), given]
    for number, agent in enumerate(agents):
        (tmp_path / str(number)).mkdir()
        assert Bench(tmp_path / str(number), agent).go().exit_code == 0
    assert seen == [expected] * 3


class Deed(BaseModel):
    what: str
    when: list[int]


def test_an_output_of_a_type_is_json(tmp_path: Path) -> None:
    script = Script([[call("final_result", "c1", response=[{"what": "x", "when": [1]}])]])
    bench = Bench(tmp_path, Agent(script.model, output_type=list[Deed]))
    assert bench.go().exit_code == 0
    assert bench.outputs() == [[{"what": "x", "when": [1]}]]


@pytest.mark.parametrize("landed", [False, True])
def test_an_output_that_is_sent_back_is_remembered_too(tmp_path: Path, landed: bool) -> None:
    script = Script([say("short"), say("long enough")])
    agent = Agent(script.model, name="support")

    @agent.output_validator
    def check(output: str) -> str:
        if len(output) < 6:
            raise ModelRetry("longer, please")
        return output

    bench = Bench(tmp_path, agent)
    go_with_deaths(bench, script.made, landed=landed)
    assert bench.outputs() == ["long enough"]
    assert "longer, please" in str(script.last[-1].parts)


def test_a_tool_that_sends_the_model_back_is_remembered(tmp_path: Path) -> None:
    script = Script([[call("find", "c1", name="x")], [call("find", "c2", name="xy")], say("ok")])
    agent = Agent(script.model, name="support")

    @agent.tool
    def find(context: RunContext[object], name: str) -> str:
        script.note("find", context.tool_call_id)
        if len(name) < 2:
            raise ModelRetry("too short")
        return name

    bench = Bench(tmp_path, agent)
    counts = go_with_deaths(bench, script.made, landed=True)
    assert set(counts.values()) == {1} and bench.outputs() == ["ok"]


def test_arguments_that_a_tool_checks_itself_are_checked_once(tmp_path: Path) -> None:
    script = Script([[call("send", "c1", to="ann"), call("send", "c2", to="bob")], say("ok")])
    checked: list[str] = []

    def known(context: RunContext[object], to: str) -> None:
        checked.append(to)

    agent = Agent(script.model, name="support")

    @agent.tool(args_validator=known)
    async def send(context: RunContext[object], to: str) -> str:
        script.note("send", context.tool_call_id)
        return f"sent to {to}"

    bench = Bench(tmp_path, agent)
    counts = go_with_deaths(bench, script.made, landed=True)
    assert {"support: send c1#0", "support: send c2#0"} < set(counts) and set(checked) == {"ann", "bob"}


def test_toolsets_and_dynamic_ones_are_remembered(tmp_path: Path) -> None:
    script = Script([[call("one", "c1"), call("two", "c2")], say("ok")])

    async def one(context: RunContext[object]) -> int:
        script.note("one", context.tool_call_id)
        return 1

    async def two(context: RunContext[object]) -> int:
        script.note("two", context.tool_call_id)
        return 2

    agent = Agent(script.model, name="support", toolsets=[FunctionToolset([one], id="ones")])

    @agent.toolset(id="twos")
    def twos(context: RunContext[object]) -> FunctionToolset[object]:
        return FunctionToolset([two])

    bench = Bench(tmp_path, agent)
    counts = go_with_deaths(bench, script.made, landed=True)
    assert {"support: one c1#0", "support: two c2#0"} < set(counts)
    assert returned(script.last) == {"c1": 1, "c2": 2}


SERVER = """
import os
from mcp.server import MCPServer

server = MCPServer("files")

@server.tool()
def read(name: str) -> str:
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(name + "\\n")
    return f"the text of {name}"

server.run("stdio")
"""


@pytest.mark.parametrize("landed", [False, True])
def test_calls_of_an_mcp_server_are_remembered(tmp_path: Path, landed: bool) -> None:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    (tmp_path / "server.py").write_text(SERVER)
    calls = tmp_path / "calls.txt"
    calls.touch()
    transport = StdioTransport(sys.executable, [str(tmp_path / "server.py")], env={"CALLS": str(calls)})
    script = Script([[call("read", "c1", name="x")], [call("read", "c2", name="y")], say("ok")])
    files = MCPToolset[None](transport, id="files", init_timeout=PATIENCE_SECONDS, read_timeout=PATIENCE_SECONDS)
    bench = Bench(tmp_path, Agent(script.model, name="support", toolsets=[files]))
    go_with_deaths(bench, script.made, landed=landed)
    assert returned(script.last) == {"c1": "the text of x", "c2": "the text of y"}
    if landed:
        assert calls.read_text().split() == ["x", "y"]


def test_an_image_is_shown_to_the_model_and_what_no_model_can_see_fails(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "b.bin").write_bytes(b"\0\1\2")
    (tmp_path / "c.txt").write_text("text")
    seen: list[Any] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        (part,) = messages[0].parts
        seen.append(part.content)  # type: ignore[union-attr]
        return ModelResponse(say("seen"))

    bench = Bench(tmp_path, Agent(FunctionModel(answer)), items=sorted(tmp_path.glob("?.*")))
    summary = bench.go()
    assert (summary.counts["done"], summary.counts["failed"]) == (2, 1)
    assert isinstance(seen[0][0], BinaryContent) and seen[0][0].media_type == "image/png"
    assert seen[1] == "text"
    assert "b.bin cannot be attached" in bench.causes()[0]


def test_a_record_is_given_as_json(tmp_path: Path) -> None:
    script = Script([say("ok")])
    assert Bench(tmp_path, Agent(script.model), items=[{"id": 7, "who": "ann"}]).go().exit_code == 0
    assert script.last[0].parts[0].content == '{"id":7,"who":"ann"}'  # type: ignore[union-attr]

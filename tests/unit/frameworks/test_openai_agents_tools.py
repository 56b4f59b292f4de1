"""Tools of the Agents SDK: their results and failures, those of MCP servers, and signals of agentrun in them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    FunctionTool,
    RunContextWrapper,
    Runner,
    ShellTool,
    ToolOutputImage,
    ToolOutputText,
    WebSearchTool,
    function_tool,
)
from agents.mcp import MCPServerStdio
from pydantic import BaseModel

import agentrun
from agentrun.frameworks import openai_agents
from unit.frameworks.openai_bench import Bench, Script, call, looking, say
from unit.launch.bench import HookedFolder
from waiting import PATIENCE_SECONDS, eventually


def bench_of(folder: Path, *tools: Any, fails_after: bool = False, **options: Any) -> Bench:
    """An agent that calls its first tool once. With `fails_after` the model's last response fails once."""
    model = Script([], [call(tools[0].name, "c1", **options)], say("done"))
    failed: list[int] = []

    def fail_once(turn: int) -> None:
        if fails_after and turn == 1 and not failed:
            failed.append(turn)
            raise ConnectionError("no answer")

    model.before = fail_once
    return Bench(folder, Agent(name="Support", model=model, tools=list(tools)))


def raising(error: BaseException, made: list[str], **options: Any) -> FunctionTool:
    async def risky() -> str:
        made.append("risky")
        raise error

    return function_tool(risky, **options)


# ---- results


@pytest.mark.parametrize(
    "output",
    [
        "a text",
        {"a": [1, 2.5, None, True]},
        ("a", 1),
        {1: "one"},
        date(2026, 1, 2),
        float("nan"),
        2**70,
        [],
        None,
        ToolOutputText(text="rich"),
        [ToolOutputText(text="rich"), ToolOutputImage(image_url="data:image/png;base64,AAAA", detail="low")],
        {"type": "text", "text": "a dict in the SDK's form"},
    ],
    ids=str,
)
def test_the_model_is_told_the_same_when_a_result_is_remembered(output: Any, tmp_path: Path) -> None:
    calls: list[int] = []

    @function_tool
    async def make() -> Any:
        calls.append(1)
        return output

    plain = bench_of(tmp_path, make)
    asyncio.run(_run_plainly(plain))
    expected = plain.agent.model.told("c1")
    bench = bench_of(tmp_path, make, fails_after=True)
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert bench.agent.model.told("c1") == expected
    assert len(calls) == 2


async def _run_plainly(bench: Bench) -> None:
    await Runner.run(bench.agent, "hello")


class Verdict(BaseModel):
    amount: int


def test_a_tools_result_that_is_the_final_output_keeps_its_type(tmp_path: Path) -> None:
    made: list[Any] = []

    @function_tool
    def judge(amount: int) -> Verdict:
        made.append("judge")
        return Verdict(amount=amount)

    model = Script([], [call("judge", "c1", amount=5)])
    agent = Agent(name="Support", model=model, tools=[judge], output_type=Verdict)
    agent.tool_use_behavior = "stop_on_first_tool"

    async def support(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        result = await openai_agents.run(agent, item.text, ctx=ctx)
        made.append(result.final_output)
        if ctx.attempt == 1:
            raise ConnectionError("no answer")
        return result.final_output.amount

    bench = Bench(tmp_path, support)
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert made == ["judge", Verdict(amount=5), Verdict(amount=5)]
    assert bench.outputs == [5]


def test_the_view_of_an_image_is_not_its_bytes(tmp_path: Path) -> None:
    @function_tool
    async def draw() -> Any:
        return [ToolOutputText(text="a line"), ToolOutputImage(image_url="data:image/png;base64,AAAA")]

    bench = bench_of(tmp_path, draw)
    assert bench.go().exit_code == 0
    assert bench.views["draw c1"] == "a line\n[image]"


# ---- failures


def test_a_failure_that_the_model_is_told_of_is_remembered(tmp_path: Path) -> None:
    made: list[str] = []
    bench = bench_of(tmp_path, raising(ConnectionError("no line"), made), fails_after=True)
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert made == ["risky"]
    told = bench.agent.model.told("c1")
    assert told == bench.views["risky c1"]
    assert told.startswith("An error occurred while running the tool")


def test_a_failure_that_is_raised_is_judged_by_what_it_was(tmp_path: Path) -> None:
    made: list[str] = []
    bench = bench_of(tmp_path, raising(ConnectionError("no line"), made, failure_error_function=None))
    assert bench.go(retries=2).exit_code == 1
    assert made == ["risky"] * 3
    assert bench.causes[-1].startswith("ConnectionError: no line")
    made.clear()
    bench = bench_of(tmp_path, raising(TypeError("a bug"), made, failure_error_function=None))
    assert bench.go(retries=2).exit_code == 1
    assert made == ["risky"]


def test_a_timeout_that_the_model_is_told_of_is_remembered(tmp_path: Path) -> None:
    made: list[str] = []

    @function_tool(timeout=0.01)
    async def sleep() -> str:
        made.append("sleep")
        await asyncio.sleep(100 if len(made) == 1 else 0)
        return "slept"

    bench = bench_of(tmp_path, sleep, fails_after=True)
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert made == ["sleep"]
    assert "timed out" in bench.agent.model.told("c1")


# ---- signals of agentrun


def _of_the_users_own(context: Any, error: Exception) -> str:
    return f"never mind: {error}"


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "policy", [{}, {"failure_error_function": None}, {"failure_error_function": _of_the_users_own}]
)
@pytest.mark.parametrize(
    ("signal", "exit_code", "made"),
    [
        (agentrun.Fail("no such order"), 1, 1),
        (agentrun.Skip("not ours"), 0, 1),
        (agentrun.Retry("later"), 1, 3),
        (agentrun.Stop("the till is closed"), 4, 1),
    ],
    ids=["fail", "skip", "retry", "stop"],
)
def test_a_signal_in_a_tool_reaches_the_runner(
    signal: Exception, exit_code: int, made: int, policy: dict[str, Any], nested: bool, tmp_path: Path
) -> None:
    calls: list[str] = []
    bench = bench_of(tmp_path, raising(signal, calls, **policy))
    if nested:
        helper = Agent(name="Helper", model=bench.agent.model, tools=bench.agent.tools)
        bench.agent = Agent(name="Support", model=Script([], [call("helper", "h1", input="x")], say("done")))
        bench.agent.tools = [helper.as_tool("helper", "Helps.")]
    summary = bench.go(retries=2)
    assert (summary.exit_code, len(calls)) == (exit_code, made), bench.causes
    if isinstance(signal, agentrun.Skip):
        assert summary.counts["skipped"] == 1
    assert str(signal) in str([summary.reason, *bench.causes])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_a_call_beside_one_that_fails_or_asks_comes_to_its_end_and_is_not_made_again(
    asks: bool, nested: bool, tmp_path: Path
) -> None:
    made: list[str] = []

    @function_tool
    async def send(what: str) -> str:
        made.append("send")
        while "check" not in made:
            await asyncio.sleep(0)
        for _ in range(200):  # in which it would be cancelled
            await asyncio.sleep(0)
        return "sent"

    @function_tool(failure_error_function=None)
    async def check(what: str) -> str:
        made.append("check")
        while "send" not in made:
            await asyncio.sleep(0)
        if asks:
            await agentrun.current().ask("Is it right?")
        elif made.count("check") == 1:
            raise ConnectionError("no answer")
        return "right"

    tools: list[Any] = [send, check]
    turn = [call("send", "c1", what="a"), call("check", "c2", what="a")]
    if nested:
        model = Script(made, [call("check", "n1", what="a")], say("right"), name="helper")
        helper = Agent(name="Helper", model=model, tools=[check]).as_tool("help", "Ask the helper.")
        tools, turn[1] = [send, helper], call("help", "c2", input="a")
    bench = Bench(tmp_path, Agent(name="Support", model=Script([], turn, say("done")), tools=tools))
    if asks:
        assert bench.go().exit_code == 3
        bench.answer()
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert made.count("send") == 1
    assert made.count("check") == 2


def test_a_model_that_a_nested_agent_cannot_reach_is_tried_again_and_not_told_to_the_outer_one(tmp_path: Path) -> None:
    made: list[str] = []
    inner = Script(made, say("found"), name="inner")
    failed: list[int] = []

    def fail_once(turn: int) -> None:
        if not failed:
            failed.append(turn)
            raise ConnectionError("no answer")

    inner.before = fail_once
    model = Script(made, [call("helper", "h1", input="x")], say("done"))
    helper = Agent(name="Helper", model=inner)
    bench = Bench(tmp_path, Agent(name="Support", model=model, tools=[helper.as_tool("helper", "Helps.")]))
    assert bench.go(retries=1).exit_code == 0, bench.causes
    assert model.told("h1") == "found"
    assert Counter(made) == {"model support#0": 1, "model inner#0": 1, "model support#1": 1}


# ---- other kinds of tools


def test_tools_that_are_not_remembered_are_named_in_the_items_log(tmp_path: Path) -> None:
    class Editor:
        def create_file(self, operation: Any) -> None: ...
        def update_file(self, operation: Any) -> None: ...
        def delete_file(self, operation: Any) -> None: ...

    shell = ShellTool(executor=lambda request: "ran")
    bench = bench_of(tmp_path, looking([]), shell, ApplyPatchTool(editor=Editor()), WebSearchTool(), what="a")
    bench.memory = HookedFolder(tmp_path / "state")
    assert bench.go().exit_code == 0, bench.causes
    assert bench.log.splitlines()[1:] == [
        "[agentrun] ShellTool 'shell' is not remembered: an item that is resumed makes its calls again",
        "[agentrun] ApplyPatchTool 'apply_patch' is not remembered: an item that is resumed makes its calls again",
    ]


def test_a_tool_that_changes_the_runs_context_is_named_in_the_items_log(tmp_path: Path) -> None:
    @function_tool
    async def seat(context: RunContextWrapper[dict[str, str]], number: str) -> str:
        context.context["seat"] = number
        return "seated"

    agent = bench_of(tmp_path, seat, number="7a").agent

    async def answer(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        given = {"seat": ""}
        await openai_agents.run(agent, item.text, ctx=ctx, context=given)
        return given

    bench = Bench(tmp_path, answer, memory=HookedFolder(tmp_path / "state"))
    assert bench.go().exit_code == 0, bench.causes
    assert bench.outputs == [{"seat": "7a"}]
    assert "tool 'seat' changed the run's context" in bench.log


def test_a_tool_made_by_hand_is_given_the_context_that_it_asks_for(tmp_path: Path) -> None:
    seen: list[str] = []

    async def invoke(context: RunContextWrapper[Any], arguments: str) -> Any:
        seen.append(type(context).__name__)
        return arguments

    bench = bench_of(tmp_path, FunctionTool("mine", "Mine.", {"type": "object", "properties": {}}, invoke))
    assert bench.go().exit_code == 0, bench.causes
    assert (seen, bench.agent.model.told("c1")) == (["RunContextWrapper"], "{}")


# ---- MCP servers


def test_the_tools_of_an_mcp_server_are_remembered_and_it_is_connected_and_closed(tmp_path: Path) -> None:
    made: list[str] = []
    log = tmp_path / "calls"
    server = MCPServerStdio(
        {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py")), str(log)]},
        client_session_timeout_seconds=PATIENCE_SECONDS,
    )
    failed: list[int] = []

    def fail_once(turn: int) -> None:
        if turn == 1 and not failed:
            failed.append(turn)
            raise ConnectionError("no answer")

    model = Script(made, [call("weigh", "c1", what="a stone")], say("done"))
    model.before = fail_once
    bench = Bench(tmp_path, Agent(name="Support", model=model, mcp_servers=[server]), items=["x", "y"])
    assert bench.go(retries=1, concurrency=2).exit_code == 0, bench.causes
    assert "a stone weighs 3 kg" in str(model.told("c1"))
    assert bench.views["weigh c1"] == "a stone weighs 3 kg"
    calls = [line.split(maxsplit=1) for line in log.read_text().splitlines()]
    assert [called for _, called in calls] == ["weigh a stone"] * 2
    assert len({pid for pid, _ in calls}) == 1
    eventually(lambda: not _lives(int(calls[0][0])), "the server has ended")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_mcp_server_that_cannot_be_started_fails_its_items(tmp_path: Path) -> None:
    server = MCPServerStdio({"command": str(tmp_path / "missing")})
    bench = Bench(tmp_path, Agent(name="Support", model=Script([], say("done")), mcp_servers=[server]))
    assert bench.go().exit_code == 1
    assert "missing" in bench.causes[0]

"""What the adapter uses of the Agents SDK beyond what the SDK promises: each is still there, and does what it did."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.tool_context import ToolContext
from openai import AsyncOpenAI

from agentrun.frameworks.openai_agents import internals
from agentrun.frameworks.openai_agents.runner import ItemRunner, installed_runner
from unit.frameworks.openai_bench import Bench


@pytest.fixture
def runner() -> Iterator[AgentRunner]:
    before = get_default_agent_runner()
    yield before
    set_default_agent_runner(before)


def test_all_runs_go_through_the_default_runner(runner: AgentRunner) -> None:
    ran: list[Any] = []

    class Mine(AgentRunner):
        async def run(self, starting_agent: Any, input: Any, **options: Any) -> Any:
            ran.append(input)
            return "the result"

    set_default_agent_runner(Mine())
    installed = installed_runner()
    assert isinstance(installed, ItemRunner)
    assert installed_runner() is installed
    assert asyncio.run(Runner.run(Agent(name="x"), "hello")) == "the result"  # type: ignore[comparison-overlap]
    assert ran == ["hello"]


def test_agents_that_are_tools_can_be_told_from_functions() -> None:
    @function_tool
    async def plain() -> None: ...

    assert not internals.is_agent(plain)
    assert internals.is_agent(Agent(name="x").as_tool("x", "X."))
    assert internals.makes_messages_of_errors(plain)
    assert not internals.makes_messages_of_errors(Agent(name="x").as_tool("x", "X.", failure_error_function=None))


def test_a_tools_function_can_be_wrapped_below_its_handling_of_errors_and_above() -> None:
    seen: list[str] = []

    @function_tool
    async def fails(what: str) -> str:
        raise ValueError(what)

    def change(body: internals.Invoke) -> internals.Invoke:
        async def changed(context: ToolContext[Any], arguments: str) -> Any:
            try:
                return await body(context, arguments)
            except ValueError as error:
                seen.append(f"below: {error}")
                raise

        return changed

    inner = internals.with_body(fails, change)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        output, is_message = await internals.call_tool(inner, context, arguments)
        seen.append(f"above: {is_message}")
        return output

    outer = internals.with_invoker(fails, invoke)
    assert type(outer.on_invoke_tool) is type(fails.on_invoke_tool)
    assert outer.__wrapped__ is fails.__wrapped__
    context = ToolContext(context=None, tool_name="fails", tool_call_id="c1", tool_arguments="")
    asyncio.run(outer.on_invoke_tool(context, '{"what": "x"}'))  # type: ignore[arg-type]
    assert seen == ["below: x", "above: True"]


def test_models_have_a_clean_up_that_can_be_passed_on() -> None:
    assert inspect.iscoroutinefunction(Model._cleanup_on_run_end)


def test_a_configuration_may_be_a_dict() -> None:
    assert internals.coerce_config(None) is None
    made = internals.coerce_config({"workflow_name": "x"})
    assert isinstance(made, RunConfig)
    assert made.workflow_name == "x"


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
def test_no_client_retries_unseen(kind: Any, tmp_path: Path) -> None:
    asked: list[str] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        return httpx2.Response(500, json={"error": {"message": "no"}})

    client = AsyncOpenAI(
        api_key="sk-none", max_retries=5, http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(refuse))
    )
    bench = Bench(tmp_path, Agent(name="Support", model=kind("gpt-x", client)))
    assert bench.go(retries=1).exit_code == 1
    assert len(asked) == 2  # an attempt each
    assert "InternalServerError" in bench.causes[-1]

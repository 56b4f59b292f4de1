"""The real command with an agent of the OpenAI Agents SDK, against the model on loopback: kills, approvals, usage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIResponsesModel, function_tool
from openai import AsyncOpenAI

import agentrun
from agentrun.frameworks import openai_agents
from crash.harness import Plan, kill_at_random
from crash.scenarios.frameworks import ToolCalls, say_yes
from llm.tool_model import ToolModel
from unit.frameworks.openai_bench import Bench

TEAM = """
from agents import Agent, function_tool, set_default_openai_api
from llm.tools import note, search, send

set_default_openai_api("chat_completions")
writer = Agent(
    name="writer", model="gpt-5-mini", tools=[function_tool(note), function_tool(send, needs_approval=True)]
)
desk = Agent(
    name="desk",
    model="gpt-5-mini",
    tools=[function_tool(search), writer.as_tool("write", "Let the writer do it.")],
)
"""


def test_an_approval_in_a_nested_agent_and_tools_side_by_side_with_kills(tmp_path: Path) -> None:
    source = tmp_path / "team.py"
    source.write_text(TEAM)
    texts = [f"What of key={n:02}? <<tools search+search, write>> <<inside note, send>>" for n in range(6)]
    seed = random.randrange(10**6)
    found = kill_at_random(ToolCalls(source, "desk", texts, answer=say_yes), Plan(3, seed=seed))
    assert not found["faults"], f"seed {seed}: {found['faults']}"
    assert found["repeated"] == 0, f"seed {seed}: {found}"


def test_the_usage_is_the_servers_count_also_after_a_failed_attempt(model: ToolModel, tmp_path: Path) -> None:
    failed: list[str] = []

    async def answer(item: agentrun.Item, ctx: agentrun.Context) -> Any:
        async with AsyncOpenAI(base_url=model.url, api_key="sk-none") as client:
            search = function_tool(look, name_override="search")
            agent = Agent(name="desk", model=OpenAIResponsesModel("gpt-5-mini", client), tools=[search])
            result = await openai_agents.run(agent, item.text, ctx=ctx)
        if not failed:
            failed.append(item.key)
            raise ConnectionError("after all calls")
        return result.final_output

    bench = Bench(tmp_path, answer, items=[f"What of key={n}? <<tools search, search+search>>" for n in range(3)])
    summary = bench.go(retries=1, concurrency=2)
    assert summary.exit_code == 0, bench.causes
    used = summary.details["usage"]
    counted = [(call.input_tokens, call.output_tokens) for call in model.calls]
    assert (used["input_tokens"], used["output_tokens"]) == tuple(map(sum, zip(*counted, strict=True)))
    assert used["requests"] == len(counted) == 9
    assert failed


async def look(topic: str) -> str:
    return f"all about {topic}"

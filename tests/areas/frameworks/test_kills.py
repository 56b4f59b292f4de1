"""`kill -9` at random moments: of a framework's agent no finished model or tool call is made again."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from crash.harness import Long, Plan, again_and_again, kill_at_random
from crash.scenarios import frameworks
from crash.scenarios.frameworks import CONCURRENCY, FILES, ToolCalls, say_yes

KILLS, KILLS_OF_TORTURE = 3, 20


def kill(framework: str, *, kills: int, seed: object) -> int:
    found = kill_at_random(frameworks.make(framework=framework), Plan(kills, seed))
    print(framework, found)
    assert not found["faults"], found["faults"]
    assert found["calls_of_a_run"] == 140 and found["kills"] == kills, found
    assert found["repeated"] == 0, f"seed {seed!r}: {found}"
    assert found["in_flight_again"] <= CONCURRENCY * kills, f"seed {seed!r}: {found}"
    return kills


@pytest.mark.parametrize("framework", FILES)
def test_no_finished_call_is_made_again_and_the_results_are_those_of_an_undisturbed_run(framework: str) -> None:
    kill(framework, kills=KILLS, seed=random.randrange(10**6))


def test_a_plain_function_makes_finished_calls_again_so_that_none_means_something() -> None:
    # With this seed the first kill comes after 16 calls, in the middle of the first four items.
    found = kill_at_random(frameworks.make(framework="pydantic_ai", way="plain"), Plan(1, seed=15))
    assert not found["faults"], found["faults"]
    assert found["repeated_model_calls"] > 0 and found["repeated_tool_calls"] > 0, found


ASKS = """
from pydantic_ai import Agent
from llm.tools import search

assistant = Agent("openai-chat:gpt-5-mini", tools=[search])

async def agent(item, ctx):
    found = await ctx.step("find", lambda: find(item.text))
    answer = await ctx.ask("Is it right?", found=found)
    return [found, answer.yes, answer.text]

async def find(text):
    return (await assistant.run(text)).output
"""


def test_the_harness_answers_what_a_job_waits_for(tmp_path: Path) -> None:
    source = tmp_path / "asks.py"
    source.write_text(ASKS)
    texts = [f"What of key={number:02}? <<tools search, search>>" for number in range(8)]
    scenario = ToolCalls(source, "agent", texts, answer=say_yes)
    found = kill_at_random(scenario, Plan(2, seed=7))
    assert not found["faults"] and found["kills"] == 2 and found["calls_of_a_run"] == 8 * 5, found
    outputs = [json.loads(line)["output"] for line in scenario.results.splitlines()]
    assert [yes for _, yes, _ in outputs] == [True] * 8


def _one(rng: random.Random) -> int:
    return sum(kill(framework, kills=KILLS_OF_TORTURE, seed=rng.getrandbits(64)) for framework in FILES)


LONG: dict[str, Long] = {"frameworks": again_and_again(_one)}

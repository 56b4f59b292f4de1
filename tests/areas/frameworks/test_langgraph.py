"""Graphs that ask, with `kill -9` at random moments, and what their models used."""

from __future__ import annotations

import json
import random
from pathlib import Path

from cli.conftest import Run
from crash.harness import Long, Plan, again_and_again, kill_at_random
from crash.scenarios.frameworks import CONCURRENCY, JOBS, ToolCalls, ToolJob, say_yes
from llm.tool_model import ToolModel

KILLS, KILLS_OF_TORTURE = 3, 20
SOURCE = JOBS / "langgraph" / "asking.py"


def answer_by_number(job: ToolJob) -> None:
    """Each question is answered with its words and which one of its item it is."""
    listed = [json.loads(line) for line in job.call("review", "job", "--list", "--json").splitlines()]
    rows = [{"key": one["key"], "answer": "yes", "text": f"{one['text']} {one['question']}"} for one in listed]
    (job.base / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job.call("answer", "job", "--file", "answers.jsonl")


def kill(*, kills: int, seed: object) -> int:
    """Items of five questions each, two of them with the same words, two side by side, one in a subgraph."""
    texts = [f"What of key={number:02}? <<tools search, search>>" for number in range(8)]
    scenario = ToolCalls(SOURCE, "graph", texts, head='[langgraph]\noutput = "said"', answer=answer_by_number)
    found = kill_at_random(scenario, Plan(kills, seed))
    assert not found["faults"] and found["kills"] == kills, f"seed {seed!r}: {found}"
    assert found["repeated"] == 0 and found["in_flight_again"] <= CONCURRENCY * kills, f"seed {seed!r}: {found}"
    expected = ["The same? 1", "The same? 2", "Left? 3", "Right? 4", "Inside? 5"]
    assert [json.loads(line)["output"] for line in scenario.results.splitlines()] == [expected] * 8
    return kills


def test_five_questions_an_item_get_their_own_answers_however_often_it_is_killed() -> None:
    kill(kills=KILLS, seed=random.randrange(10**6))


def test_a_tool_that_must_be_approved_is_used_once_however_often_it_is_killed() -> None:
    texts = [f"What of key={number:02}? <<tools search, send, search>>" for number in range(8)]
    scenario = ToolCalls(SOURCE, "approved", texts, answer=say_yes)
    found = kill_at_random(scenario, Plan(KILLS, seed=random.randrange(10**6)))
    assert not found["faults"] and found["kills"] == KILLS, found
    assert found["repeated"] == 0 and found["in_flight_again"] <= CONCURRENCY * KILLS, found


def test_usage_is_what_the_server_counted(agentrun: Run, tmp_path: Path, model: ToolModel) -> None:
    (tmp_path / "graph.py").write_bytes((JOBS / "langgraph" / "graph.py").read_bytes())
    (tmp_path / "items.txt").write_text("".join(f"What of key={number}?\n" for number in range(5)))
    (tmp_path / "job.toml").write_text('name = "job"\nagent = "graph.py:graph"\n[items]\nlines = "items.txt"\n')
    tests = str(JOBS.parents[2])
    keys = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "sk-none", "PYTHONPATH": tests}
    done = agentrun("start", "job.toml", "-j", "3", "--json", **keys)
    assert done.returncode == 0, done.stderr
    usage = json.loads(done.stdout)["usage"]
    assert usage["requests"] == len(model.calls) == 20
    assert usage["input_tokens"] == sum(call.input_tokens for call in model.calls)
    assert usage["output_tokens"] == sum(call.output_tokens for call in model.calls)


def _one(rng: random.Random) -> int:
    return kill(kills=KILLS_OF_TORTURE, seed=rng.getrandbits(64))


LONG: dict[str, Long] = {"graphs that ask": again_and_again(_one)}

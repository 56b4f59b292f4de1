"""The samples of frameworks: letters are answered, one is asked about, and the answer is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from needs import require_module
from samples.test_samples import AGENTRUN, call, lines_of, samples

__all__ = ["samples"]
require_module("langgraph", extra="langgraph")
require_module("agents", extra="openai-agents")
require_module("pydantic_ai", extra="pydantic-ai")
require_module("langchain_openai", extra="dev")
ANSWERED = ["Order 1001: a lamp, 39.00, sent", "Order 1003: a book, 12.50, sent", "Order 1004: delivered"]


@pytest.mark.parametrize("sample", ["langgraph", "openai_agents", "pydantic_ai"])
@pytest.mark.parametrize("yes", [True, False], ids=["yes", "no"])
def test_the_one_letter_that_asks_for_money_waits_for_a_person(samples: Path, sample: str, yes: bool) -> None:
    job = f"{sample}/job.toml"
    started = call(AGENTRUN, "start", job, cwd=samples)
    assert started.returncode == 3, started.stderr
    so_far = lines_of(samples / sample / f"{sample}.results.partial.jsonl")
    assert [line["output"] for line in so_far] == ANSWERED
    (question,) = [
        json.loads(line) for line in call(AGENTRUN, "review", job, "--json", cwd=samples).stdout.splitlines()
    ]
    assert question["index"] == 1 and all(step["view"] for step in question["steps"])
    answered = call(AGENTRUN, "answer", job, "--index", "1", "--yes" if yes else "--no", cwd=samples)
    assert answered.returncode == 0, answered.stderr
    resumed = call(AGENTRUN, "resume", job, "--json", cwd=samples)
    assert resumed.returncode == 0, resumed.stderr
    output = lines_of(samples / sample / f"{sample}.results.jsonl")[1]["output"]
    assert ("25.00 paid back" in output) == yes
    # Nine calls of the model, each 50 tokens: none was made again after the pause.
    assert json.loads(resumed.stdout)["usage"]["input_tokens"] == 9 * 50

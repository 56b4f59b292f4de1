"""A budget holds for prompts: what the provider counted is within it, however often the runner was killed."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.money.prices import price
from agentrun.money.usage import Reported
from crash.command_line import COMMAND
from crash.scenarios.spending import BUDGET, CONCURRENCY, prices
from llm.server import Asked, LlmServer, serve
from waiting import PATIENCE_SECONDS, eventually, happens_before_exit

Run = Callable[..., subprocess.CompletedProcess[str]]

KILLS = 5
MODEL = "gpt-5-mini"


@pytest.mark.parametrize("advice", ["prices", "tokens"])
def test_a_model_without_a_price_is_told_before_the_first_item_and_the_advice_works(
    agentrun: Run, llm: LlmServer, tmp_path: Path, advice: str
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f"""
        name = "ask"
        prompt = "{{text}}"
        model = "openai:my-model"
        base_url = "{llm.url}"
        [items]
        lines = "items.txt"
        [run]
        budget = 1.00
    """)
    (tmp_path / "items.txt").write_text("one\ntwo\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return agentrun(*words, OPENAI_API_KEY="sk-none")

    ended = run("start", "job.toml")
    assert ended.returncode == 2 and not llm.asked
    assert 'a budget is set, but no price is known for the model "my-model"' in ended.stderr
    assert ended.stderr.strip() in run("start", "job.toml", "--plan").stdout
    table = re.search(r"add (\[.*\]) to job.toml, with input = … and output = …", ended.stderr)
    flags = re.search(r"limit tokens in place of dollars: (--.*)", ended.stderr)
    assert table is not None and flags is not None
    if advice == "prices":
        job.write_text(f"{job.read_text()}\n{table[1]}\ninput = 1000\noutput = 1000\n")
        ended = run("start", "job.toml", "--json")
        used = json.loads(ended.stdout)["usage"]
        assert used["cost"] == pytest.approx((used["input_tokens"] + used["output_tokens"]) / 1000)
    else:
        ended = run("start", "job.toml", *flags[1].split())
    assert ended.returncode == 0, ended.stderr
    assert len(llm.asked) == 2


def test_a_server_that_reports_no_usage_is_told_what_to_do_and_that_works(
    agentrun: Run, llm: LlmServer, tmp_path: Path
) -> None:
    (tmp_path / "items.txt").write_text("<<nousage>> one\n<<nousage>> two\n")
    flags = ["--name", "ask", "--prompt", "{text}", "--model", f"openai:{MODEL}", "--base-url", llm.url]
    ended = agentrun(
        "start", *flags, "--items", "items.txt", "--as", "lines", "--budget", "1", OPENAI_API_KEY="sk-none"
    )
    assert ended.returncode == 4
    advised = re.search(r"this server does not report usage; remove the budget: (--.*)", ended.stderr)
    assert advised is not None
    assert agentrun("resume", "ask", *advised[1].split(), OPENAI_API_KEY="sk-none").returncode == 0


def test_through_the_real_command_what_the_server_counted_is_within_the_budget(tmp_path: Path) -> None:
    per_token = (price(Reported(model=MODEL, provider="openai", output_tokens=1_000_000)) or 0.0) / 1e6
    assert per_token
    chance, costs = random.Random("command"), prices(1)
    job = f"""
        name = "job"
        prompt = "key={{key}}"
        model = "openai:{MODEL}"
        [items]
        lines = "items.txt"
        [run]
        budget = {BUDGET}
        concurrency = {CONCURRENCY}
        crash_limit = 0
    """
    (tmp_path / "job.toml").write_text(job)
    (tmp_path / "items.txt").write_text("".join(f"{n}\n" for n in range(len(costs))))

    def answer(asked: Asked) -> str:
        time.sleep(chance.uniform(0.02, 0.2))
        return "yes"

    def tokens(asked: Asked) -> tuple[int, int]:
        return 0, round(costs[int(asked.key)] / per_token)

    with serve(answer, tokens) as server:

        def start() -> subprocess.Popen[bytes]:
            given = [COMMAND, "start", "job.toml", "--base-url", server.url]
            environ = {**os.environ, "OPENAI_API_KEY": "sk-none"}
            with (tmp_path / "said.log").open("ab") as said:
                return subprocess.Popen(given, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, stderr=said)

        for _ in range(KILLS):
            runner, wanted = start(), len(server.asked) + chance.randint(1, 8)
            happens_before_exit(runner, lambda wanted=wanted: len(server.asked) >= wanted, "requests")  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.1))
            runner.kill()
            assert runner.wait() in (4, -9), (tmp_path / "said.log").read_text()
        assert start().wait(PATIENCE_SECONDS) == 4, (tmp_path / "said.log").read_text()
        eventually(lambda: len(server.used) == len(server.asked), "all requests are counted")
        assert server.cost(0.0, per_token) <= BUDGET

"""A budget holds for prompts: what the provider counted is within it, however often the runner was killed."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

from agentrun.money.prices import price
from agentrun.money.usage import Reported
from crash.command_line import COMMAND
from crash.scenarios.spending import BUDGET, CONCURRENCY, prices
from llm.server import Asked, serve
from waiting import PATIENCE_SECONDS, eventually, happens_before_exit

KILLS = 5
MODEL = "gpt-5-mini"


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

"""A budget holds: what the provider counted is within it, however often the runner was killed."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from agentrun.money.prices import price
from crash.command_line import COMMAND, PATIENCE_SECONDS, apart, eventually, wait_or_exit
from crash.spending import BUDGET, CONCURRENCY, ITEMS, prices
from llm.server import Asked, serve

DUST = 1e-9
ONE_PRICE = [0.03] * ITEMS
KILLS = 5
MODEL = "gpt-5-mini"


def spend(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = apart("crash.spending", "spend", *arguments)
    print(found)
    assert found["exit_code"] == 4 and "the budget of $1.00 is reached" in found["reason"]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_undisturbed_most_of_the_budget_is_spent_and_no_more(seed: int) -> None:
    found = spend(prices(seed), seed, 0)
    assert 0.8 * BUDGET < found["counted"] <= BUDGET
    assert found["usage"]["cost"] == pytest.approx(found["counted"])


@pytest.mark.parametrize("seed", range(4))
def test_killed_five_times_what_was_in_flight_counts_as_spent(seed: int) -> None:
    """With items of one price, of which one has ended, the reservations are exact."""
    found = spend(ONE_PRICE, seed, KILLS, "ended")
    assert found["kills"]
    assert found["counted"] <= BUDGET + DUST


@pytest.mark.parametrize("seed", range(12))
def test_killed_five_times_nothing_is_charged_twice(seed: int) -> None:
    assert spend(ONE_PRICE, seed, KILLS, "ended")["usage"]["cost"] <= BUDGET + DUST


@pytest.mark.parametrize("seed", range(8))
def test_killed_five_times_with_items_of_any_price_the_budget_holds(seed: int) -> None:
    found = spend(prices(seed), seed, KILLS)
    assert found["kills"]
    assert found["counted"] <= BUDGET


def test_killed_five_times_in_the_first_item_the_budget_holds() -> None:
    """When nobody knows yet what an item costs."""
    found = spend(ONE_PRICE, 1, KILLS, "first")
    assert found["kills"] == KILLS
    assert found["counted"] <= BUDGET + DUST


@pytest.mark.timeout(300)
def test_through_the_real_command_what_the_server_counted_is_within_the_budget(tmp_path: Path) -> None:
    per_token = (price({"model": MODEL, "provider": "openai", "output_tokens": 1_000_000}) or 0.0) / 1e6
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
            wait_or_exit(runner, lambda wanted=wanted: len(server.asked) >= wanted)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.1))
            runner.kill()
            assert runner.wait() in (4, -9), (tmp_path / "said.log").read_text()
        assert start().wait(PATIENCE_SECONDS) == 4, (tmp_path / "said.log").read_text()
        eventually(lambda: len(server.used) == len(server.asked), "all requests are counted")
        assert server.cost(0.0, per_token) <= BUDGET

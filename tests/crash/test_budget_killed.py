"""A budget holds: what the provider counted is within it, however often the runner was killed."""

from __future__ import annotations

from typing import Any

import pytest

from crash.harness import run_apart
from crash.scenarios.spending import BUDGET, ITEMS, Moment, prices

DUST = 1e-9
ONE_PRICE = [0.03] * ITEMS
KILLS = 5


def spend(costs: list[float], seed: int, kills: int, moment: Moment = "requests") -> dict[str, Any]:
    """Kill so often, then go on until the budget is spent."""
    found = run_apart("spending", {"costs": costs, "moment": moment}, kills=kills, tries=kills, seed=f"spend {seed}")
    print(found)
    assert not found["faults"], found["faults"]
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

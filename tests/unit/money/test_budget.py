"""What a run may spend: how many items may be in flight, and what is charged for those that were lost."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import structs, to_builtins

from agentrun.checkpoint.checkpoint import Running
from agentrun.money.budget import Purse, Totals, lost_words
from agentrun.money.usage import Usage


def in_flight_allowed(purse: Purse, first_row: int) -> int:
    """Begin as many as it lets, and put them back."""
    rows: list[int] = []
    while purse.refusal() is None and len(rows) < 100:
        rows.append(first_row + len(rows))
        purse.begin(rows[-1])
    for row in rows:
        purse.end(row)
    return len(rows)


def settle(purse: Purse, row: int, cost: float) -> None:
    purse.begin(row)
    purse.charge(row, Usage(cost=cost, input_tokens=10, requests=1))
    purse.end(row)


@pytest.mark.parametrize("limit", [{"budget": 1000.0}, {"token_budget": 10**9}])
def test_one_is_in_flight_at_first_and_then_half_as_many_as_have_ended_in_this_launch(limit: dict[str, Any]) -> None:
    purse = Purse(Totals(), **limit)
    allowed = []
    for row in range(12):
        allowed.append(in_flight_allowed(purse, 1000))
        settle(purse, row, 0.03)
    assert allowed == [max(1, math.ceil(ended / 2)) for ended in range(12)]
    # What is known from an earlier launch is what an item costs, and not how many may be lost at once.
    assert in_flight_allowed(Purse(structs.replace(purse.totals), **limit), 1000) == 1


def test_without_a_limit_nothing_is_refused_and_all_is_added_up() -> None:
    purse = Purse(Totals())
    for row in range(3):
        settle(purse, row, 0.5)
    assert in_flight_allowed(purse, 1000) == 100
    assert (purse.totals.cost, purse.totals.input_tokens) == (1.5, 30)


def test_what_is_in_flight_is_reserved_at_the_dearest_less_what_it_has_said() -> None:
    purse = Purse(Totals(), budget=1.0)
    settle(purse, 0, 0.4)
    purse.begin(1)
    assert purse.reserved(1) == (0.4, 10.0)
    purse.charge(1, Usage(cost=0.1, input_tokens=4, requests=1))
    assert purse.reserved(1) == (0.3, 6.0)
    # 0.5 is spent, 0.3 may follow, and another would be 0.4.
    assert purse.refusal() is not None
    purse.end(1)
    assert purse.refusal() is None
    settle(purse, 2, 0.2)
    assert "the budget of $1.00 is reached: $0.70 is spent" in str(purse.refusal())


def test_what_a_launch_left_in_flight_is_charged_once_and_again_when_a_dearer_one_ends() -> None:
    purse = Purse(Totals(cost=0.1, dearest=0.1), budget=9.0)
    purse.charge_left([Running(index=0, key="a", reserved=0.1), Running(index=1, key="b", reserved=0.06)])
    assert [purse.totals.lost, purse.totals.cost] == pytest.approx([0.16, 0.26])
    settle(purse, 0, 0.3)
    # Each may have cost 0.3 as well, of which the second had reported 0.04.
    assert purse.totals.lost == pytest.approx(0.3 + 0.26)
    settle(purse, 1, 0.2)
    assert purse.totals.lost == pytest.approx(0.56)


def test_ten_items_of_a_tenth_fit_into_one_though_floats_do_not_add_up() -> None:
    purse = Purse(Totals(), budget=1.0)
    for row in range(10):
        assert purse.refusal() is None
        settle(purse, row, 0.1)
    assert purse.refusal() is not None


def test_a_copy_of_the_totals_does_not_change_when_more_is_charged() -> None:
    """A checkpoint is written in another thread, from the copy that was taken with `running`."""
    purse = Purse(Totals(cost=0.1, dearest=0.1), budget=9.0)
    purse.charge_left([Running(index=0, key="a", reserved=0.1)])
    copy = structs.replace(purse.totals)
    before = to_builtins(copy)
    settle(purse, 0, 0.3)
    purse.charge_left([Running(index=1, key="b", reserved=0.1)])
    assert to_builtins(copy) == before


# ---- without a budget


def test_without_a_budget_what_a_launch_left_is_counted_beside_the_cost() -> None:
    purse = Purse(Totals(cost=0.1, dearest=0.1))
    purse.charge_left([Running(index=0, key="a", reserved=0.1), Running(index=1, key="b", reserved=0.06)])
    assert (purse.totals.cost, purse.totals.lost) == (0.1, 0.0)
    assert purse.totals.may_be_lost == pytest.approx(0.16)
    # Each may have cost as much as one that ends later, of which the second had reported 0.04.
    settle(purse, 0, 0.3)
    assert purse.totals.cost == pytest.approx(0.4)
    assert purse.totals.may_be_lost == pytest.approx(0.3 + 0.26)
    settle(purse, 1, 0.2)
    assert purse.totals.may_be_lost == pytest.approx(0.56)
    assert purse.totals.as_json()["may_be_lost"] == pytest.approx(0.56)


def test_what_was_left_before_the_first_cost_was_known_counts_when_it_is() -> None:
    purse = Purse(Totals(cost=0.02, requests=1))
    purse.charge_left([Running(index=0, key="a", used=Usage(cost=0.02)), Running(index=1, key="b")])
    assert purse.totals.may_be_lost == 0.0
    settle(purse, 0, 0.1)
    # The first had reported 0.02, which the cost has already.
    assert purse.totals.may_be_lost == pytest.approx(0.2 - 0.02)


def test_a_budget_charges_what_was_left_without_one_and_nothing_is_counted_twice() -> None:
    totals = Totals(cost=0.1, dearest=0.1)
    Purse(totals).charge_left([Running(index=0, key="a", reserved=0.1)])
    assert (totals.cost, totals.may_be_lost) == (0.1, 0.1)
    for _ in range(2):
        Purse(totals, budget=5.0).charge_left([])
        assert (totals.cost, totals.lost, totals.may_be_lost) == (0.2, 0.1, 0.0)
    Purse(totals).charge_left([Running(index=0, key="a", reserved=0.1)])
    assert (totals.cost, totals.lost, totals.may_be_lost) == (0.2, 0.1, 0.1)


def test_an_attempt_that_was_cut_off_is_counted_too() -> None:
    purse = Purse(Totals())
    settle(purse, 0, 0.1)
    purse.charge_unknown(1)
    assert (purse.totals.cost, purse.totals.may_be_lost, purse.totals.may_be_lost_tokens) == (0.1, 0.1, 10)


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        ({}, ""),
        ({"cost": 0.5, "lost": 0.03}, "$0.03 of it lost in crashes"),
        ({"cost": 0.5, "may_be_lost": 0.04, "may_be_lost_tokens": 9}, "at least $0.04 more may be lost in crashes"),
        ({"input_tokens": 7, "may_be_lost_tokens": 2000.0}, "at least 2,000 tokens more may be lost in crashes"),
        ({"cost": 0.5, "may_be_lost_tokens": 2000.0}, ""),
    ],
)
def test_what_crashes_may_have_cost_in_words(usage: dict[str, float], words: str) -> None:
    assert lost_words(usage) == words


@pytest.mark.parametrize(
    ("limits", "flags"),
    [
        ({"budget": 1.0}, "--budget 2"),
        ({"token_budget": 100}, "--token-budget 200"),
        ({"budget": 9.0, "token_budget": 100}, "--token-budget 200"),
        # Twice as much would be reached already.
        ({"budget": 0.25}, "--budget 2.2"),
    ],
)
def test_the_flags_to_continue_are_those_of_the_limit_that_is_reached_and_are_enough(
    limits: dict[str, Any], flags: str
) -> None:
    purse = Purse(Totals(), **limits)
    for row in range(10):
        settle(purse, row, 0.1)
    assert purse.refusal() is not None
    assert purse.raised() == flags
    name, value = flags.split()
    higher = limits | {"budget" if name == "--budget" else "token_budget": float(value)}
    assert Purse(purse.totals, **higher).refusal() is None

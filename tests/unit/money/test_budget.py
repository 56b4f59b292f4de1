"""What a run may spend: how many items may be in flight, and what is charged for those that were lost."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import structs, to_builtins

from agentrun.checkpoint.checkpoint import Running
from agentrun.money.budget import Purse, Totals
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
    assert purse.reserved(1) == (0.4, 0.0)
    purse.charge(1, Usage(cost=0.1, requests=1))
    assert purse.reserved(1) == (0.3, 0.0)
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

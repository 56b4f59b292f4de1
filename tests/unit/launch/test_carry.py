"""The carry, from item to item and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.values.units import parse_allowance
from unit.launch.bench import (
    World,
    carried,
    counting,
    failing,
    names,
)


@pytest.fixture
def carrying(world: World) -> World:
    world.job = replace(world.job, carry=True)
    return world


def test_the_carry_goes_from_item_to_item_and_over_a_crash(carrying: World) -> None:
    carrying.items(*names(6))
    expected = carried(carrying)
    for landed in (False, True):
        for commits in range(1, 6):
            carrying.clear()
            carrying.crash(counting, commits=commits, landed=landed, overwrite=True)
            assert carrying.go(counting).exit_code == 0
            assert len(carrying.ran) == 6 - commits + (not landed)
            assert (carrying.base / "out.jsonl").read_bytes() == expected


def test_the_carry_of_an_item_that_failed_is_not_kept(carrying: World) -> None:
    carrying.items("a", "b", "c")
    carrying.job = replace(carrying.job, allow_failures=parse_allowance("1"))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        outcome = await counting(attempt, channel)
        return failing() if attempt.item.key == "b" else outcome

    assert carrying.go(script).exit_code == 0
    assert [line["output"]["before"] for line in carrying.results()] == [[], ["value of a"]]


def test_where_an_item_changed_the_run_goes_back_to_it_with_the_carry_before_it(carrying: World) -> None:
    carrying.items(*names(6))
    assert carrying.go(counting, limit=4).exit_code == 4
    carrying.items(*names(6), k002=1)
    generations: dict[str, int] = {}

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        generations[attempt.item.key] = attempt.generation
        return await counting(attempt, channel)

    assert carrying.go(script).exit_code == 0
    assert carrying.ran == names(6)[2:]
    assert generations == {"k002": 1, "k003": 1, "k004": 0, "k005": 0}
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("commits", [0, 1, 2, 3, 4])
def test_a_crash_while_going_back_is_still_right(carrying: World, commits: int, landed: bool) -> None:
    carrying.items(*names(6))
    assert carrying.go(counting, limit=5).exit_code == 4
    carrying.items(*names(6), k001=1)
    carrying.crash(counting, commits=commits, landed=landed)
    assert carrying.go(counting).exit_code == 0
    # The first commit of a launch has no record; each further one that is on disk is an item not run again.
    settled = max(0, commits - 1 + landed)
    assert carrying.ran == names(6)[1 + settled :]
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


@pytest.mark.parametrize(
    "now",
    [
        ["k001", "k000", "k002", "k003", "k004"],
        ["k000", "new", "k001", "k002", "k003", "k004"],
        ["k000", "k002", "k003", "k004"],
        ["new", "k000", "k001", "k002", "k003", "k004"],
    ],
    ids=["moved", "inserted", "gone", "first"],
)
def test_moved_inserted_and_gone_items_break_the_carry_there(carrying: World, now: list[str]) -> None:
    carrying.items(*names(5))
    assert carrying.go(counting, limit=4).exit_code == 4
    carrying.items(*now)
    assert carrying.go(counting, allow_gone=True).exit_code == 0
    unbroken = next(n for n in range(6) if now[n] != names(5)[n])
    assert carrying.ran == now[unbroken:]
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


def test_with_a_carry_changed_items_are_kept_when_asked_until_something_breaks_it(carrying: World) -> None:
    carrying.items(*names(5))
    carrying.job = replace(carrying.job, keep_changed=True)
    assert carrying.go(counting, limit=3).exit_code == 4
    carrying.items("new", *names(5), k001=1)
    assert carrying.go(counting).exit_code == 0
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)

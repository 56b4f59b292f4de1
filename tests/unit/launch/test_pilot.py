"""--pilot: a few items from all over the list run first, and say what the rest will take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Used
from agentrun.errors import PlanError, UsageError
from agentrun.job.options import read_options
from agentrun.money.usage import Reported
from agentrun.runs.only import Pilot
from unit.launch.bench import World, answer, failing, names, only


async def costing(attempt: Attempt, channel: Channel) -> Outcome:
    """From one cent to two, by the item's place."""
    await channel(Used(Reported(cost=0.01 + attempt.item.index / 20_000, input_tokens=100, output_tokens=10)))
    return await answer(attempt, channel)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_one_item_of_each_part_runs_and_counts_as_a_result(world: World, concurrency: int) -> None:
    world.items(*names(200))
    world.job = replace(world.job, concurrency=concurrency)
    summary = world.go(costing, pilot=20)
    ran = sorted(int(key[1:]) for key in world.ran)
    assert [at // 10 for at in ran] == list(range(20))
    assert (summary.exit_code, summary.stopped_by, summary.counts["done"]) == (4, "pilot", 20)
    assert summary.reason == "the pilot of 20 is over; 180 others are pending"
    assert world.planned().plan.others == 180
    assert world.launch is not None and world.launch.progress.to_run == 20
    found = summary.estimate
    assert found is not None and found.cost is not None and found.tokens is not None and found.failures is not None
    assert found.cost.low < sum(0.01 + at / 20_000 for at in range(200) if at not in ran) < found.cost.high
    assert (found.tokens.low, found.tokens.high) == (180 * 110, 180 * 110)
    assert found.seconds is not None and found.concurrency == concurrency
    assert found.failures.low == found.failures.likely == 0 < found.failures.high
    # Nothing of it runs again.
    before = set(world.ran)
    assert world.go(costing).exit_code == 0
    assert len(world.ran) == 180 and not before & set(world.ran)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_the_run_decides_which_items_they_are() -> None:
    first, again, other = (Pilot(range(1000), 20, seed=seed) for seed in ("a", "a", "b"))
    rows = [[row for row in range(1000) if row in pilot] for pilot in (first, again, other)]
    assert rows[0] == rows[1] != rows[2]


def test_a_pilot_draws_from_what_is_to_run(world: World) -> None:
    world.items(*names(40))
    world.go(limit=20)
    world.go(pilot=5)
    assert len(world.ran) == 5 and not set(world.ran) & set(names(20))


def test_failed_items_that_are_retried_can_be_drawn(world: World) -> None:
    world.items(*names(3))
    assert world.go(only({"k001": failing()})).exit_code == 1
    assert world.go(pilot=5).exit_code == 0
    assert world.ran == ["k001"]


def test_a_pilot_over_everything_is_the_whole_run(world: World) -> None:
    world.items(*names(8))
    summary = world.go(costing, pilot=20)
    assert (summary.exit_code, summary.estimate) == (0, None)


def test_a_pilot_that_fails_gives_its_causes(world: World) -> None:
    world.items(*names(40))
    world.job = replace(world.job, stop_after_failures=0)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return failing() if attempt.item.index % 2 else await answer(attempt, channel)

    summary = world.go(script, pilot=20)
    found = summary.estimate
    assert (summary.exit_code, summary.stopped_by) == (4, "pilot")
    assert found is not None and found.seconds is None
    assert found.why_not == f"{found.failed} of 20 items failed, too many for an estimate"
    assert [(one.cause, one.count) for one in found.causes] == [("Fail: no", found.failed)]


def test_a_budget_below_the_low_end_is_said_with_one_that_would_do(world: World) -> None:
    world.items(*names(200))
    world.job = replace(world.job, budget=1.0)
    summary = world.go(costing, pilot=20)
    assert (summary.exit_code, summary.stopped_by) == (4, "pilot")
    assert summary.reason.startswith("the budget is too low for the rest: it is $1.00, with $0.")
    assert summary.flags.startswith("--budget ")
    state = world.state()
    assert state is not None and state.stopped is not None and state.stopped.next.endswith(summary.flags)
    world.job = replace(world.job, budget=float(summary.flags.split()[1]))
    assert world.go(costing).exit_code == 0


def test_a_token_budget_likewise(world: World) -> None:
    world.items(*names(200))
    world.job = replace(world.job, token_budget=5_000)
    summary = world.go(costing, pilot=20)
    assert "it is 5,000 tokens, with 2,200 used, and the rest takes 19,800 or more" in summary.reason
    assert summary.flags == "--token-budget 22000"


def test_a_budget_that_may_be_enough_is_no_obstacle(world: World) -> None:
    world.items(*names(200))
    world.job = replace(world.job, budget=4.0)
    assert world.go(costing, pilot=20).flags == ""


def test_items_with_a_carry_cannot_be_drawn(world: World) -> None:
    world.items(*names(3))
    world.job = replace(world.job, carry=True)
    with pytest.raises(PlanError, match=r"--pilot cannot be used with carry = true.*--limit"):
        world.go(pilot=2)
    assert world.state() is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pilot": 20, "limit": 3}, "--pilot and --limit are both given; give one of them"),
        ({"pilot": 20, "only": ["a"]}, "--pilot and --only are both given; give one of them"),
        ({"pilot": 0}, "--pilot is 0; write a number of items, 1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_options(given, are_flags=True)

"""Money: what items use, what a run may spend, and what is charged for a launch that died."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Received, Used
from agentrun.checkpoint.record import Record, Try
from agentrun.money.usage import Reported, Usage
from unit.launch.bench import FakeExecutor, Script, World, answer, failing, idle, names


def costing(*, bill: dict[str, float], prices: dict[str, float] | None = None, default: float = 0.1) -> Script:
    """Each item costs its price; `bill` is what the provider has counted, whatever becomes of us."""

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        cost = (prices or {}).get(key, default)
        bill[key] = bill.get(key, 0.0) + cost
        await idle()
        assert await channel(Used(Reported(cost=cost, input_tokens=100, output_tokens=10))) == Received()
        return await answer(attempt, channel)

    return script


def test_usage_is_added_up_for_attempts_items_and_the_run(world: World) -> None:
    world.items("x", "y")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Used(Reported(cost=0.25, input_tokens=10, output_tokens=1)))
        if attempt.item.key == "x" and attempt.number == 1:
            return failing("Retry")
        await channel(Used(Reported(cost=0.5, input_tokens=20, output_tokens=2)))
        return await answer(attempt, channel)

    summary = world.go(script)
    assert summary.usage.cost == 1.75
    assert summary.usage.input_tokens == 70
    assert summary.usage.requests == 5
    records = {record.key: record for record in world.records()}
    assert records["x"].usage == Usage(cost=1.0, input_tokens=40, output_tokens=4, requests=3)
    assert [cost_of(one) for one in records["x"].tries] == [0.25, 0.75]
    assert cost_of(records["y"]) == 0.75


def test_the_items_own_usage_goes_on_over_launches(world: World) -> None:
    world.items("x")

    async def fails(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Used(Reported(cost=0.25)))
        return failing()

    assert world.go(fails).exit_code == 1
    summary = world.go(costing(bill={}))
    assert summary.usage.cost == 0.35
    assert cost_of(world.records()[-1]) == 0.35


def test_until_one_item_has_a_cost_one_is_in_flight(world: World) -> None:
    world.items(*names(40))
    world.job = replace(world.job, budget=100.0, concurrency=8)
    most: list[int] = []
    bill: dict[str, float] = {}

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await idle()
        most.append(len(executor.live))
        return await costing(bill=bill)(attempt, channel)

    executor = FakeExecutor(script)
    assert world.go(executor=executor).exit_code == 0
    assert most[0] == 1
    # And then half as many as have ended, until all slots are taken.
    assert all(live - 1 <= ended / 2 for ended, live in enumerate(most))
    assert 2 < max(most) <= 8


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_no_item_is_begun_that_would_pass_the_budget_and_a_higher_one_goes_on(world: World, concurrency: int) -> None:
    world.items(*names(30))
    bill: dict[str, float] = {}
    world.job = replace(world.job, budget=1.0, concurrency=concurrency)
    summary = world.go(costing(bill=bill))
    assert summary.exit_code == 4
    assert "budget" in summary.reason
    assert summary.counts["done"] == 10
    assert sum(bill.values()) == pytest.approx(1.0)
    assert world.go(costing(bill=bill)).exit_code == 4
    assert world.ran == []
    world.job = replace(world.job, budget=3.0)
    assert world.go(costing(bill=bill)).exit_code == 0
    assert sum(bill.values()) == pytest.approx(3.0)


def test_tokens_have_a_budget_too(world: World) -> None:
    world.items(*names(10))
    world.job = replace(world.job, token_budget=550, concurrency=4)
    summary = world.go(costing(bill={}))
    assert summary.exit_code == 4
    assert "tokens" in summary.reason
    assert summary.counts["done"] == 5


def test_a_launch_that_died_is_charged_what_was_reserved(world: World) -> None:
    world.items(*names(40))
    bill: dict[str, float] = {}
    world.job = replace(world.job, budget=2.0, concurrency=4)
    world.crash(costing(bill=bill), commits=9, landed=True)
    state = world.state()
    assert state is not None
    assert all(one.reserved == 0.1 for one in state.running) and len(state.running) == 4
    before = state.usage.cost
    assert before is not None and before < 2.0
    summary = world.go(costing(bill=bill))
    assert summary.exit_code == 4
    assert summary.usage.lost == pytest.approx(0.4)
    assert summary.usage.cost == pytest.approx(2.0)
    assert sum(bill.values()) <= 2.0


def test_a_dearer_item_later_says_what_the_lost_ones_may_have_cost(world: World) -> None:
    world.items(*names(40))
    world.job = replace(world.job, budget=9.0, concurrency=4)
    world.crash(costing(bill={}), commits=9, landed=True)
    summary = world.go(costing(bill={}, default=0.3), limit=5)
    assert summary.usage.lost == pytest.approx(4 * 0.3)


def test_what_the_provider_counted_stays_within_the_budget_though_launches_die(world: World) -> None:
    chance = random.Random(7)
    prices = {key: 0.03 * chance.lognormvariate(0, 0.4) for key in names(100)}
    for seed in range(6):
        chance = random.Random(seed)
        bill: dict[str, float] = {}
        world.items(*names(100))
        world.job = replace(world.job, budget=1.0, concurrency=16)
        for _ in range(5):
            try:
                world.crash(costing(bill=bill, prices=prices), commits=chance.randint(1, 8), fresh=not bill)
            except pytest.fail.Exception:  # nothing was left to spend
                break
        assert world.go(costing(bill=bill, prices=prices)).exit_code == 4
        assert sum(bill.values()) <= 1.0
        world.go(costing(bill={}), fresh=True, limit=1)


def test_an_item_that_ends_without_a_word_of_what_it_used_stops_the_run(world: World) -> None:
    world.items(*names(5))
    world.job = replace(world.job, budget=1.0)
    summary = world.go()
    assert summary.exit_code == 4
    assert "k000" in summary.reason
    assert "ctx.usage" in summary.hint
    assert summary.counts["done"] == 1


def test_free_items_are_free(world: World) -> None:
    world.items(*names(5))
    world.job = replace(world.job, budget=1.0, concurrency=2)
    assert world.go(costing(bill={}, default=0.0)).exit_code == 0


def test_a_model_without_a_price_stops_the_run_and_says_which_line_to_add(world: World) -> None:
    world.items(*names(5))
    world.job = replace(world.job, budget=1.0)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Used(Reported(model="no-such-model-9000", input_tokens=5, output_tokens=5)))
        return await answer(attempt, channel)

    summary = world.go(script)
    assert summary.exit_code == 4
    assert "no-such-model-9000" in summary.reason
    assert "ctx.usage(response, cost=…)" in summary.hint
    assert summary.counts["done"] == 1
    # Without a budget it is only not known.
    world.job = replace(world.job, budget=None)
    assert world.go(script).exit_code == 0


def test_an_attempt_that_timed_out_is_charged_what_was_reserved(world: World) -> None:
    world.items("x", "y")
    world.job = replace(world.job, budget=10.0, retries=0)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "y":
            return Outcome("failed", failure=Failure("timeout", "timed out"))
        return await costing(bill={})(attempt, channel)

    summary = world.go(script)
    assert summary.usage.lost == pytest.approx(0.1)
    assert summary.usage.cost == pytest.approx(0.2)


def test_no_further_attempt_is_made_that_would_pass_the_budget(world: World) -> None:
    world.items("x", "y")
    world.job = replace(world.job, budget=0.35, retries=5)
    attempts: list[str] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        attempts.append(attempt.item.key)
        await channel(Used(Reported(cost=0.1)))
        return failing("Retry") if attempt.item.key == "y" else await answer(attempt, channel)

    summary = world.go(script)
    assert summary.exit_code == 4
    assert attempts == ["x", "y", "y"]
    assert summary.counts["pending"] == 1


# ---- without a budget


def test_without_a_budget_a_launch_that_died_is_counted_beside_the_cost(world: World) -> None:
    world.items(*names(40))
    bill: dict[str, float] = {}
    world.job = replace(world.job, concurrency=4)
    world.crash(costing(bill=bill), commits=9, landed=True)
    state = world.state()
    assert state is not None
    assert [one.reserved for one in state.running] == [0.1] * 4
    summary = world.go(costing(bill=bill))
    assert summary.exit_code == 0
    assert summary.usage.cost == pytest.approx(4.0)
    assert summary.usage.may_be_lost == pytest.approx(0.4)
    assert sum(bill.values()) <= 4.4 + 1e-9
    # A new run begins with nothing.
    assert world.go(costing(bill=bill), fresh=True).usage.may_be_lost == 0


@pytest.mark.parametrize("seed", range(6))
def test_without_a_budget_cost_and_what_may_be_lost_cover_what_the_provider_counted(world: World, seed: int) -> None:
    chance, bill = random.Random(seed), dict[str, float]()
    world.items(*names(200))
    world.job = replace(world.job, concurrency=8)
    for _ in range(4):
        world.crash(costing(bill=bill), commits=chance.randint(1, 5), landed=chance.random() < 0.5)
    summary = world.go(costing(bill=bill))
    usage, state = summary.usage, sum(bill.values())
    assert usage.cost is not None
    assert usage.cost - 1e-9 <= state <= usage.cost + usage.may_be_lost + 1e-9


def test_agents_that_report_nothing_have_nothing_reserved(world: World) -> None:
    world.items(*names(9))
    world.job = replace(world.job, concurrency=4)
    world.crash(commits=3, landed=True)
    summary = world.go()
    assert summary.usage.as_json() == {}


def cost_of(one: Record | Try) -> float | None:
    assert one.usage is not None
    return one.usage.cost

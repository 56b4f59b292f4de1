"""item_budget: an item that uses more than it may is ended, and costs at most the cap plus one call."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Received, StepGet, StepPut, Used
from agentrun.job.job import Job
from agentrun.launch.launch import Launch
from agentrun.launch.pricing import how_to_price, how_to_report
from agentrun.money.usage import Reported
from unit.launch.bench import Died, FakeExecutor, Script, World, answer, dies_after, failing, idle, names

CALL = 0.1
CAUSE = "it used more than the $0.50 of item_budget"


def looping(bill: dict[str, float], *, loops: str = "k001") -> Script:
    """This item calls its model for ever, and reports each call; the others call it once."""

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        while True:
            bill[key] = bill.get(key, 0.0) + CALL
            reply = await channel(Used(Reported(cost=CALL, input_tokens=10, output_tokens=1)))
            if key != loops:
                assert reply == Received()
                return await answer(attempt, channel)
            await idle()

    return script


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_item_that_loops_costs_the_cap_plus_one_call_and_fails_alone(world: World, concurrency: int) -> None:
    world.items(*names(6))
    world.job = replace(world.job, item_budget=0.5, concurrency=concurrency)
    bill: dict[str, float] = {}
    executor = FakeExecutor(looping(bill))
    summary = world.go(executor=executor)
    assert (summary.exit_code, summary.counts["done"], summary.counts["failed"]) == (1, 5, 1)
    assert not executor.live and executor.began.count("k001") == 1
    assert bill["k001"] <= 0.5 + CALL + 1e-9
    (failed,) = [record for record in world.records() if record.kind == "failed"]
    assert failed.error is not None and failed.error.cause == CAUSE
    assert failed.usage is not None and failed.usage.cost == pytest.approx(0.6)
    assert summary.usage.cost == pytest.approx(sum(bill.values()))


def test_tokens_of_an_item_have_a_budget_too(world: World) -> None:
    world.items(*names(3))
    world.job = replace(world.job, item_token_budget=50)
    bill: dict[str, float] = {}
    assert world.go(looping(bill)).counts["failed"] == 1
    assert bill["k001"] == pytest.approx(5 * CALL)
    (failed,) = [record for record in world.records() if record.kind == "failed"]
    assert failed.error is not None and failed.error.cause == "it used more than the 50 tokens of item_token_budget"


def test_an_item_may_use_exactly_its_budget(world: World) -> None:
    world.items("a")
    world.job = replace(world.job, item_budget=0.3)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        for _ in range(3):
            assert await channel(Used(Reported(cost=CALL))) == Received()
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0


def test_retries_count_together(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, item_budget=0.5, retries=20)
    calls: list[str] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "b":
            return await looping({})(attempt, channel)
        calls.append("call")
        await channel(Used(Reported(cost=CALL)))
        return failing("Retry")

    assert world.go(script).counts == {"pending": 0, "done": 1, "failed": 1, "skipped": 0, "waiting": 0}
    assert len(calls) == 6


def test_a_launch_that_stops_in_between_does_not_start_the_count_anew(world: World) -> None:
    world.items("k001", "z")
    world.job = replace(world.job, item_budget=0.5)
    bill: dict[str, float] = {}
    for _ in range(4):
        reported = asyncio.Event()

        async def script(attempt: Attempt, channel: Channel, reported: asyncio.Event = reported) -> Outcome:
            if attempt.item.key == "k001":
                bill["k001"] = bill.get("k001", 0.0) + 2 * CALL
                await channel(Used(Reported(cost=2 * CALL)))
                reported.set()
                await asyncio.Event().wait()
            return await answer(attempt, channel)

        async def during(launch: Launch, reported: asyncio.Event = reported) -> None:
            stopped = asyncio.ensure_future(reported.wait())
            await asyncio.wait({stopped}, timeout=5)
            launch.request_stop(2)
            launch.request_stop(2)

        world.go(script, during=during)
    assert bill["k001"] == pytest.approx(6 * CALL)
    failed = [record for record in world.records() if record.kind == "failed"]
    assert failed and failed[-1].error is not None and failed[-1].error.cause == CAUSE


@pytest.mark.parametrize("commits", range(2, 9))
def test_after_a_crash_the_item_has_used_what_it_reported(world: World, commits: int) -> None:
    """What an item reports is on disk before it is answered: a crash loses one call at most."""
    world.items("k001", "z")
    world.job = replace(world.job, item_budget=0.5)
    bill: dict[str, float] = {}
    world.hook = dies_after(commits, landed=False)
    try:
        world.go(looping(bill))
    except Died:
        pass
    world.hook = lambda store: None
    summary = world.go(looping(bill))
    assert (summary.exit_code, summary.counts["failed"], summary.counts["done"]) == (1, 1, 1)
    assert bill["k001"] <= 0.5 + 2 * CALL + 1e-9
    # The next launch fails it without a call, as long as the cap is what it was.
    before = dict(bill)
    assert world.go(looping(bill)).counts["failed"] == 1
    assert bill == before
    world.job = replace(world.job, item_budget=10.0)
    assert world.go(looping(bill, loops=""), failed=True).exit_code == 0


def test_what_an_item_reports_is_on_disk_before_it_is_answered(world: World) -> None:
    world.items("a")
    world.job = replace(world.job, item_budget=5.0)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        for number in range(1, 4):
            assert await channel(Used(Reported(cost=CALL))) == Received()
            state = world.state()
            assert state is not None and state.running[0].used is not None
            assert state.running[0].used.cost == pytest.approx(number * CALL)
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0


def test_a_redone_item_has_its_budget_again(world: World) -> None:
    from agentrun.people import desk
    from agentrun.views.finding import KnownJob

    world.items("k001", "z")
    world.job = replace(world.job, item_budget=0.5)
    assert world.go(looping({})).counts["failed"] == 1
    desk.redo(KnownJob("job", world.store(), world.job), desk.Selection(items=["k001"]))
    assert world.go(looping({}, loops="")).exit_code == 0


def test_remembered_steps_count(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, item_budget=0.5)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "a" and attempt.number == 1:
            await channel(StepGet("search"))
            await channel(Used(Reported(cost=0.4)))
            await channel(StepPut("search", 1, "1", 0.0))
            return failing("Retry")
        await channel(Used(Reported(cost=0.2)))
        return await answer(attempt, channel)

    summary = world.go(script)
    assert (summary.counts["done"], summary.counts["failed"]) == (1, 1)


def test_items_that_report_nothing_under_a_budget_stop_the_run(world: World) -> None:
    world.items(*names(5))
    world.job = replace(world.job, item_budget=0.5)
    summary = world.go()
    assert summary.exit_code == 4 and summary.counts["done"] == 1
    assert summary.hint.endswith("or remove the budget: --item-budget none")


def test_a_model_without_a_price_stops_the_run(world: World) -> None:
    world.items(*names(5))
    world.job = replace(world.job, item_budget=0.5)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await channel(Used(Reported(model="unheard-of", input_tokens=10, output_tokens=1)))
        return await answer(attempt, channel)

    summary = world.go(script)
    assert summary.exit_code == 4 and "unheard-of" in summary.reason
    assert "--item-budget none --item-token-budget 100000" in summary.hint


def test_what_to_give_instead_names_every_budget(world: World) -> None:
    job: Job = replace(world.job, budget=1.0, item_budget=0.5)
    assert how_to_report(job).endswith("remove the budget: --budget none --item-budget none")
    way = how_to_price(job, Reported(model="m", input_tokens=1))
    assert way.endswith("--budget none --token-budget 1000000 --item-budget none --item-token-budget 100000")

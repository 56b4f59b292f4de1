"""Which failures are tried again, by which launch."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.events import Stopping
from agentrun.values.units import parse_allowance
from unit.launch.bench import (
    World,
    answer,
    failing,
    names,
    only,
)


def test_failed_items_are_tried_last_by_the_next_launch_and_left_after_three(world: World) -> None:
    world.items("a", "b")
    script = only({"a": failing()})
    assert world.go(script).exit_code == 1
    assert world.ran == ["a", "b"]
    assert world.keys("out.partial.jsonl") == ["b"]
    world.items("a", "b", "c")
    assert world.go(script).exit_code == 1
    assert world.ran == ["c", "a"]
    assert world.go(script).exit_code == 1
    assert world.ran == ["a"]
    assert world.go(script).exit_code == 1
    assert world.ran == []
    assert world.planned().plan.left == 1
    assert world.go(script, failed=True).exit_code == 1
    assert world.ran == ["a"]
    assert world.go(script).exit_code == 1
    assert world.ran == []
    assert world.go(script, agent="v2").exit_code == 1
    assert world.ran == ["a"]
    assert world.go(agent="v3").exit_code == 0
    assert world.ran == ["a"]
    assert world.keys() == ["a", "b", "c"]
    assert not (world.base / "out.partial.jsonl").exists()


def test_a_failed_item_that_changed_is_a_pending_one(world: World) -> None:
    world.items("a", "b")
    for _ in range(4):
        world.go(only({"a": failing()}))
    world.items("a", "b", a=2)
    generations: list[int] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        generations.append(attempt.generation)
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0
    assert world.ran == ["a"] and generations == [1]


@pytest.mark.parametrize(("allowed", "exit_code"), [("0", 1), ("1", 1), ("2", 0), ("19%", 1), ("20%", 0)])
def test_a_run_completes_with_as_many_failures_as_are_allowed(world: World, allowed: str, exit_code: int) -> None:
    world.items(*names(10))
    world.job = replace(world.job, allow_failures=parse_allowance(allowed))
    summary = world.go(only({"k003": failing(), "k007": failing()}))
    assert summary.exit_code == exit_code
    assert summary.counts["failed"] == 2
    if exit_code == 0:
        assert world.keys() == [key for key in names(10) if key not in ("k003", "k007")]
        assert world.state() is None


def test_three_failures_before_the_first_done_item_stop_a_launch(world: World) -> None:
    world.items(*names(20))
    summary = world.go(only(dict.fromkeys(names(20), failing())))
    assert summary.exit_code == 4
    assert world.ran == names(3)
    # A higher limit would not help: before the first done item it is 3.
    assert "3 items failed in a row" in summary.reason and "--stop-after-failures 0" in summary.hint


def test_failures_in_a_row_stop_a_launch_and_a_done_one_between_does_not(world: World) -> None:
    world.items(*names(30))
    world.job = replace(world.job, stop_after_failures=4)
    bad = [key for key in names(30) if key not in ("k000", "k004")]
    summary = world.go(only(dict.fromkeys(bad, failing())))
    assert summary.exit_code == 4
    assert world.ran == names(9)


def test_stop_after_failures_0_never_stops(world: World) -> None:
    world.items(*names(15))
    world.job = replace(world.job, stop_after_failures=0)
    assert world.go(only(dict.fromkeys(names(15), failing()))).exit_code == 1
    assert world.ran == names(15)


def test_when_a_launch_stops_what_would_be_tried_again_goes_back_and_is_not_failed(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, concurrency=2)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "b":
            return failing("Stop")
        while not any(isinstance(event, Stopping) for event in world.events):
            await asyncio.sleep(0)
        return failing("Retry")

    summary = world.go(script)
    assert (summary.exit_code, summary.counts["failed"], summary.counts["pending"]) == (4, 0, 2)
    assert sorted(world.ran) == ["a", "b"]
    assert world.go().exit_code == 0


@pytest.mark.parametrize(("resume_at", "exit_code"), [(None, 4), ("2026-05-05T06:00:00", 75)])
def test_what_would_fail_everyone_stops_and_marks_nothing_failed(
    world: World, resume_at: str | None, exit_code: int
) -> None:
    world.items(*names(20))
    world.job = replace(world.job, concurrency=3)
    bad = failing("Stop", resume_at=resume_at)
    summary = world.go(only(dict.fromkeys(names(20)[2:], bad)), no_wait=True)
    assert summary.exit_code == exit_code
    assert len(world.ran) <= 5
    found = world.state()
    assert found is not None and found.running == []
    assert (found.counts["failed"], found.counts["done"], found.counts["pending"]) == (0, 2, 18)
    assert world.go().exit_code == 0
    assert world.ran == names(20)[2:]


def test_a_skipped_item_is_settled_without_a_line(world: World) -> None:
    world.items("a", "b", "c")
    summary = world.go(only({"b": failing("Skip")}))
    assert summary.exit_code == 0 and summary.counts["skipped"] == 1
    assert world.results() == [
        {"index": 0, "key": "a", "output": {"of": "value of a"}},
        {"index": 2, "key": "c", "output": {"of": "value of c"}},
    ]

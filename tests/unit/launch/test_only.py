"""--only: one launch runs some of the items, and the rest stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Answered, Ask
from agentrun.errors import PlanError
from agentrun.people import desk
from agentrun.runs.only import Only
from agentrun.views.finding import KnownJob
from unit.launch.bench import World, answer, failing, names, only


@pytest.mark.parametrize("concurrency", [1, 8])
def test_only_the_items_that_match_run_and_the_rest_stay_pending(world: World, concurrency: int) -> None:
    world.items("a/1", "a/2", "b/1", "b/2", "c")
    world.job = replace(world.job, concurrency=concurrency)
    summary = world.go(only=("a/*", "c"))
    assert sorted(world.ran) == ["a/1", "a/2", "c"]
    assert (summary.exit_code, summary.stopped_by, summary.counts["pending"]) == (4, "only", 2)
    assert "2 others are pending" in summary.reason
    assert world.planned().plan.others == 2
    assert world.launch is not None and (world.launch.progress.to_run, world.launch.progress.others) == (3, 2)
    state = world.state()
    assert state is not None and state.context.others == 2
    again = world.go(only=("a/1",))
    assert (world.ran, again.exit_code, again.stopped_by) == ([], 4, "only")
    assert world.go().exit_code == 0
    assert sorted(world.ran) == ["b/1", "b/2"] and world.launch.progress.others == 0
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_run_completes_when_the_rest_is_settled(world: World) -> None:
    world.items(*names(4))
    world.go(limit=3)
    assert world.go(only=("k003",)).exit_code == 0
    world.items(*names(4), k001=1)
    assert world.go(only=("k00[13]",)).exit_code == 0 and world.ran == ["k001"]


def test_failed_items_are_retried_only_if_they_match(world: World) -> None:
    world.items(*names(4))
    assert world.go(only({"k000": failing(), "k001": failing()})).exit_code == 1
    summary = world.go(only=("k000",))
    assert (world.ran, summary.exit_code, summary.counts["failed"]) == (["k000"], 1, 1)


def test_a_pattern_that_matches_nothing_is_refused_with_a_few_keys(world: World) -> None:
    world.items(*names(9))
    with pytest.raises(PlanError, match='no item matches --only "x\\*"; keys are such as k000, k001, k002, …'):
        world.go(only=("k*", "x*"))
    assert world.state() is None


def test_items_with_a_carry_cannot_be_picked(world: World) -> None:
    world.items(*names(3))
    world.job = replace(world.job, carry=True)
    with pytest.raises(PlanError, match="--limit"):
        world.go(only=("k001",))


def test_an_item_that_is_answered_meanwhile_runs_only_if_it_matches(world: World) -> None:
    world.items("asks", "b", "c")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "asks" and not isinstance(await channel(Ask("Go?", {})), Answered):
            return Outcome("waiting")
        return await answer(attempt, channel)

    assert world.go(script, only=("asks",)).counts["waiting"] == 1
    desk.answer(KnownJob("job", world.store(), world.job), desk.Selection(items=["asks"]), yes=True)
    summary = world.go(only=("b",))
    assert (world.ran, summary.exit_code, summary.counts["pending"]) == (["b"], 4, 2)


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("*.txt", ["a.txt", "docs/b.txt"], ["a.md"]),
        ("docs/*", ["docs/b.txt", "docs/x/y"], ["a.txt"]),
        ("a[1].txt", ["a[1].txt", "a1.txt"], ["a2.txt"]),
        ("k?", ["k1"], ["k12", "K1"]),
        ("", [], ["a"]),
    ],
)
def test_patterns_are_those_of_a_shell_and_a_key_matches_itself(
    pattern: str, matches: list[str], others: list[str]
) -> None:
    found = Only([pattern])
    for row, key in enumerate([*matches, *others]):
        found.note(row, key)
    assert [row in found for row in range(20)] == [row < len(matches) for row in range(20)]
    assert found.unmatched == ([] if matches else [pattern])

"""The items as they are now: moved, new, changed, gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.errors import ItemsError, LaterError, PlanError, SourceChangedError
from agentrun.events import Warned
from agentrun.job.job import ItemsSpec
from unit.launch.bench import (
    World,
    answer,
    failing,
    interrupted,
    names,
    only,
)


def test_moved_items_keep_their_result_and_only_new_changed_and_unfinished_ones_are_run(world: World) -> None:
    interrupted(world, 20, 12)
    kept = names(20)
    now = ["new1", *kept[::-1][:10], "new2", *kept[:10], "new3"]
    now.remove("k005")  # gone, and finished: one of twelve
    world.items(*now, k003=1, k015=2)
    assert world.go(allow_gone=False).exit_code == 0
    plan = world.planned().plan
    # k003 was finished and has changed; k012 to k019 were not finished.
    assert sorted(world.ran) == sorted(["k003", *kept[12:], "new1", "new2", "new3"])
    assert (plan.changed, plan.gone, plan.kept, plan.run) == (1, 1, 10, 11)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_too_much_gone_is_refused_and_coming_back_nothing_is_run_twice(world: World) -> None:
    interrupted(world, 20, 10)
    before = world.state()
    world.items(*names(20)[2:])
    with pytest.raises(PlanError, match=r"2 of 10 finished items are no longer in the source \(k000, k001\)"):
        world.go()
    assert world.state() == before
    world.items(*names(20))
    assert world.go().exit_code == 0
    assert world.ran == names(20)[10:]


def test_what_is_gone_is_left_out_when_allowed_and_counts_again_when_it_is_back(world: World) -> None:
    interrupted(world, 20, 10)
    world.items(*names(20)[5:])
    assert world.go(allow_gone=True, limit=4).exit_code == 4
    # What was allowed once is not asked for again.
    assert world.go(limit=1).exit_code == 4
    found = world.state()
    assert found is not None and (found.total, found.counts["done"]) == (15, 10)
    world.items(*names(20))
    assert world.go().exit_code == 0
    assert world.ran == names(20)[15:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_gone_item_is_not_in_the_results(world: World) -> None:
    interrupted(world, 20, 10)
    world.items(*names(20)[1:])
    assert world.go().exit_code == 0
    assert world.keys() == names(20)[1:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_failed_item_that_is_gone_is_neither_tried_nor_counted(world: World) -> None:
    world.items(*names(5))
    world.go(only({"k001": failing()}))
    world.items(*[key for key in names(5) if key != "k001"])
    assert world.go().exit_code == 0
    assert world.ran == []


def test_changed_items_are_kept_when_asked(world: World) -> None:
    interrupted(world, 6, 4)
    world.job = replace(world.job, keep_changed=True)
    world.items(*names(6), k001=1, k005=2)
    assert world.go().exit_code == 0
    assert world.ran == ["k004", "k005"]
    assert world.planned().plan.kept_changed == 1
    assert [line["output"]["of"] for line in world.results()][1::4] == ["value of k001", 2]


def test_an_item_that_changes_after_the_listing_stops_the_launch(world: World) -> None:
    world.items(*names(4))
    with pytest.raises(SourceChangedError, match="k001") as caught:
        world.go(prepared=lambda: world.items(*names(4), k001=1))
    assert caught.value.exit_code == 75
    found = world.state()
    assert found is not None and found.running == [] and found.counts["failed"] == 0
    assert world.go().exit_code == 0
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_what_is_new_or_changed_before_the_end_is_run_too(world: World) -> None:
    world.items(*names(4))
    changed: list[bool] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k003" and not changed:
            changed.append(True)
            world.items(*names(6), k000=1)
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0
    assert world.ran == [*names(4), "k000", "k004", "k005"]
    assert any(isinstance(event, Warned) and "run now: 3" in event.text for event in world.events)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_items_that_go_during_the_launch_are_not_left_out_silently(world: World) -> None:
    world.items(*names(10))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k009":
            world.items(*names(3))
        return await answer(attempt, channel)

    with pytest.raises(LaterError, match="no longer in the source"):
        world.go(script)
    assert not (world.base / "out.jsonl").exists()
    world.items(*names(10))
    assert world.go().exit_code == 0
    assert world.ran == []
    assert world.keys() == names(10)


@pytest.mark.parametrize("line", [b'{"id": "half', b'{"id": "k000", "v": 1}\n'], ids=["half a line", "a key twice"])
def test_a_source_that_goes_bad_during_the_launch_is_for_later(world: World, line: bytes) -> None:
    """Exit 75, not 2: items were run, and the same command goes on when the source is at rest."""
    world.items(*names(4))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k003":
            with (world.base / "items.jsonl").open("ab") as file:
                file.write(line)
        return await answer(attempt, channel)

    with pytest.raises(LaterError, match=r"items\.jsonl, line 5"):
        world.go(script)
    world.items(*names(4))
    assert world.go().exit_code == 0
    assert world.ran == [] and world.keys() == names(4)


def test_without_items_there_is_nothing_to_run(world: World) -> None:
    world.items()
    with pytest.raises(ItemsError, match="nothing to run"):
        world.go()
    assert world.state() is None


def test_files_are_items_by_their_path_and_run_again_when_their_content_changed(world: World) -> None:
    world.job = replace(world.job, items=ItemsSpec(kind="files", pattern="docs/*.txt"))
    docs = world.base / "docs"
    docs.mkdir()
    for name in ("a", "b", "c"):
        (docs / f"{name}.txt").write_text(name)
    assert world.go(limit=2).exit_code == 4
    (docs / "a.txt").touch()  # other times, the same content
    (docs / "b.txt").write_text("b, longer")
    assert world.go().exit_code == 0
    assert world.ran == ["docs/b.txt", "docs/c.txt"]
    assert [line["output"]["of"] for line in world.results()] == ["a", "b, longer", "c"]


def test_repeated_lines_are_items_of_their_own_at_every_launch(world: World) -> None:
    world.job = replace(world.job, items=ItemsSpec(kind="lines", pattern="urls.txt"))
    (world.base / "urls.txt").write_text("x\ny\nx\nx\ny\n")
    assert world.go(limit=2).exit_code == 4
    assert world.ran == ["x", "y"]
    assert world.go(limit=1).exit_code == 4
    assert world.ran == ["x~2"]
    assert world.go().exit_code == 0
    assert world.ran == ["x~3", "y~2"]
    assert world.keys() == ["x", "y", "x~2", "x~3", "y~2"]

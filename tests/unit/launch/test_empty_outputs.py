"""Empty outputs: counted, warned of, or failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.events import Warned
from agentrun.people import desk
from agentrun.store.port import Store
from agentrun.views.finding import KnownJob
from agentrun.views.jobs import view_job
from agentrun.views.listing import read_items
from unit.launch.bench import Script, World, answer, names

EMPTIES: list[Any] = [None, "", {}, [], " \n\t\u00a0"]


def giving(values: Mapping[str, Any]) -> Script:
    """These items have these outputs; all others have one that is not empty."""

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key in values:
            return Outcome("done", orjson.dumps(values[attempt.item.key]))
        return await answer(attempt, channel)

    return script


def warnings(world: World) -> list[str]:
    return [event.text for event in world.events if isinstance(event, Warned) and "empty" in event.text]


def test_every_kind_of_empty_output_is_counted_and_what_only_looks_like_one_is_not(world: World) -> None:
    keys = names(9)
    full: list[Any] = [0, False, [None], {"a": None}]
    world.items(*keys)
    summary = world.go(giving(dict(zip(keys, [*EMPTIES, *full], strict=True))))
    assert (summary.exit_code, summary.empty, summary.as_json()["empty"]) == (0, 5, 5)
    store: Store = world.store()
    assert view_job(store, "job").empty == 5
    assert [item.key for item in read_items(store) if item.is_empty] == keys[:5]
    assert [line["output"] for line in world.results()] == [*EMPTIES, *full]


def test_three_in_a_row_are_warned_of_once_a_launch(world: World) -> None:
    keys = names(9)
    world.items(*keys)
    two_and_two = giving(dict.fromkeys([keys[0], keys[1], keys[3], keys[4]]))
    assert world.go(two_and_two, limit=5).empty == 4
    assert warnings(world) == []
    summary = world.go(giving(dict.fromkeys(keys)), rerun="all")
    assert summary.exit_code == 0
    (text,) = warnings(world)
    assert "3 outputs in a row are empty, the last of k002" in text
    assert "the agent returns its result" in text and 'empty = "fail"' in text
    world.job = replace(world.job, empty="allow")
    assert world.go(giving(dict.fromkeys(keys)), fresh=True).empty == 0
    assert warnings(world) == []


@pytest.mark.parametrize("landed", [False, True])
def test_the_count_survives_crashes_resumes_and_the_next_run(world: World, landed: bool) -> None:
    keys = names(6)
    world.items(*keys)
    script = giving(dict.fromkeys(keys[:4]))
    world.crash(script, commits=3, landed=landed)
    found = world.state()
    assert found is not None and 0 < found.context.empty == found.counts["done"] < 4
    assert world.go(script, limit=2).exit_code == 4
    assert world.go(script).empty == 4
    # Kept from the run before: one changes, and is no longer empty.
    world.items(*keys, k000=1)
    summary = world.go(giving({}))
    assert (summary.ran, summary.empty) == (1, 3)


def test_what_people_redo_edit_or_replace_no_longer_counts(world: World) -> None:
    keys = names(4)
    world.items(*keys)
    assert world.go(giving(dict.fromkeys(keys))).empty == 4
    known = KnownJob("job", world.store(), world.job)
    desk.redo(known, desk.Selection(items=["k000"]))
    desk.edit(desk.to_edit(known, desk.Selection(items=["k001"])), "by hand")
    desk.edit(desk.to_edit(known, desk.Selection(items=["k002"])), {})
    assert world.go(giving({})).empty == 2


def test_with_empty_fail_it_is_retried_and_then_a_failure(world: World) -> None:
    world.items(*names(3))
    world.job = replace(world.job, empty="fail", retries=2)
    tried: dict[str, int] = {}

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        tried[key] = tried.get(key, 0) + 1
        if key == "k001" or (key == "k000" and tried[key] == 1):
            return Outcome("done", b'" "')
        return await answer(attempt, channel)

    summary = world.go(script)
    assert (summary.exit_code, summary.counts["failed"], summary.empty) == (1, 1, 0)
    assert tried == {"k000": 2, "k001": 3, "k002": 1}
    (failed,) = [item for item in read_items(world.store()) if item.state == "failed"]
    assert (failed.key, failed.cause, failed.attempts) == ("k001", "empty output", 3)
    assert warnings(world) == []


def test_an_item_that_left_files_is_not_empty(world: World) -> None:
    world.items(*names(2))
    world.job = replace(world.job, empty="fail")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        out = Path(attempt.work) / "out"
        out.mkdir(parents=True)
        (out / "report.txt").write_text("x")
        return Outcome("done", b"null", made_files=True)

    summary = world.go(script)
    assert (summary.exit_code, summary.empty) == (0, 0)
    assert world.go().nothing_to_do

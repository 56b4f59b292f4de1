"""From one run to the next, nothing is paid twice without a word, and what people said is kept."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.errors import PlanError
from agentrun.events import Planned
from agentrun.job.options import Options
from agentrun.launch.preview import plan_launch
from agentrun.people import desk
from agentrun.people.desk import Selection
from agentrun.values.units import parse_allowance
from agentrun.views.finding import KnownJob
from unit.launch.bench import Hooked, World, answer, failing, names, only

MANY = 200


def known(world: World) -> KnownJob:
    return KnownJob("job", world.store(), world.job)


def outputs(world: World) -> dict[str, object]:
    return {line["key"]: line["output"] for line in world.results()}


def is_nothing(world: World) -> bool:
    prospect = plan_launch(world.job, world.store(), agent="v1", options=Options())
    plan = prospect.planned.plan
    return prospect.is_nothing and (plan.to_run, plan.gone, plan.moved) == (0, 0, 0)


def test_of_200_items_5_changed_3_new_and_2_gone_8_run_and_the_results_are_those_of_a_fresh_run(world: World) -> None:
    world.items(*names(MANY))
    assert world.go().exit_code == 0 and len(world.ran) == MANY
    assert world.go().nothing_to_do and world.ran == []
    changed = {f"k{number:03}": number for number in (3, 50, 51, 120, 199)}
    world.items(*names(MANY)[2:], "new1", "new2", "new3", **changed)
    summary = world.go()
    assert sorted(world.ran) == sorted([*changed, "new1", "new2", "new3"])
    assert (summary.exit_code, summary.ran, summary.kept) == (0, 8, MANY - 7)
    plan = world.planned().plan
    assert (plan.kept, plan.run, plan.changed, plan.gone) == (MANY - 7, 3, 5, 2)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()
    assert is_nothing(world)


def test_what_went_while_a_run_was_unfinished_is_gone_once_and_is_kept_if_it_comes_back(world: World) -> None:
    world.items(*names(10))
    assert world.go(limit=8).exit_code == 4
    world.items(*names(10)[4:])
    with pytest.raises(PlanError, match="--allow-gone"):
        world.go()
    assert world.go(allow_gone=True).exit_code == 0 and world.planned().plan.gone == 4
    assert is_nothing(world)
    world.items(*names(10)[4:], k009=1)
    assert world.go().exit_code == 0 and world.ran == ["k009"]
    plan = world.planned().plan
    assert (plan.gone, plan.finished) == (0, 6)
    world.clear()
    world.items(*names(10))
    assert world.go(limit=8, overwrite=True).exit_code == 4
    world.items(*names(10)[4:])
    assert world.go(allow_gone=True).exit_code == 0
    world.items(*names(10))
    assert world.go().exit_code == 0 and world.ran == [] and world.keys() == names(10)


def test_max_age_runs_only_the_older_results(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    really = time.time_ns
    with monkeypatch.context() as earlier:
        earlier.setattr(time, "time_ns", lambda: really() - 2 * 3600 * 10**9)
        earlier.setattr(time, "time", lambda: really() / 10**9 - 2 * 3600)
        world.items("a", "b")
        assert world.go().exit_code == 0
    world.items("a", "b", "c")
    assert world.go().exit_code == 0 and world.ran == ["c"]
    world.job = replace(world.job, max_age_seconds=3600.0)
    assert world.go().exit_code == 0 and world.ran == ["a", "b"]
    assert world.planned().plan.too_old == 2
    assert world.go().nothing_to_do


def test_max_age_gives_up_nothing_of_an_unfinished_run(world: World) -> None:
    world.job = replace(world.job, max_age_seconds=0.0)
    world.items(*names(6))
    assert world.go(limit=4).exit_code == 4
    assert world.go().exit_code == 0 and world.ran == names(6)[4:]
    assert [one.status for one in world.store().summaries()] == ["finished"]


@pytest.mark.parametrize("word", ["max_age", "old-agent", "all"])
def test_an_edit_that_is_posted_is_kept_where_its_result_would_run_again(world: World, word: str) -> None:
    world.items("a", "b")
    assert world.go().exit_code == 0
    desk.edit(desk.to_edit(known(world), Selection(items=["a"])), "by hand", by="ada")
    if word == "max_age":
        world.job = replace(world.job, max_age_seconds=0.0)
    assert world.go(agent="v2", rerun=word if word != "max_age" else None).exit_code == 0
    assert world.ran == ["b"] and outputs(world)["a"] == "by hand"


def test_redo_edit_and_skip_after_the_end_are_kept_by_later_starts(world: World) -> None:
    world.job = replace(world.job, allow_failures=parse_allowance("1"))
    world.items(*names(4))
    fails = only({"k003": failing()})
    assert world.go(fails).exit_code == 0
    desk.redo(known(world), Selection(items=["k000"]), by="ada")
    desk.edit(desk.to_edit(known(world), Selection(items=["k001"])), "by hand", by="ada")
    desk.skip(known(world), Selection(items=["k003"]), by="ada")
    assert world.go(fails).exit_code == 0 and world.ran == ["k000"]
    plan = world.planned().plan
    assert (plan.redone, plan.kept, plan.run, plan.failed) == (1, 3, 0, 0)
    for _ in range(2):
        assert world.go(fails).nothing_to_do and world.ran == []
    for number in range(2):
        world.items(*names(4), f"new{number}")
        assert world.go(fails, allow_gone=True).exit_code == 0 and world.ran == [f"new{number}"]
        assert outputs(world)["k001"] == "by hand" and "k003" not in outputs(world)


def test_a_run_that_was_finished_but_not_cleared_is_continued_like_any_finished_run(in_folder: World) -> None:
    world = in_folder
    world.items("a", "b")
    world.hook = lambda store: setattr(store, "after", keep_state)
    states: list[bytes] = []

    def keep_state(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        states.append((world.folder / "state.json").read_bytes())

    assert world.go().exit_code == 0
    world.hook = lambda store: None
    # As if the launch had died between the summary and clearing its state.
    for item in ((), ("c",)):
        (world.folder / "state.json").write_bytes(states[-1])
        next((world.folder / "runs").glob("*.jsonl")).rename(world.folder / orjson.loads(states[-1])["journal"]["name"])
        world.items("a", "b", *item)
        prospect = plan_launch(world.job, world.store(), agent="v1", options=Options())
        assert prospect.is_nothing == (not item)
        assert world.go().exit_code == 0 and world.ran == list(item)


@pytest.mark.parametrize("landed", [False, True])
def test_killed_at_every_commit_of_such_a_start_nothing_is_run_twice(in_folder: World, landed: bool) -> None:
    """The processes die by os._exit, in place of kill -9; what each called is in a file."""
    world = in_folder
    calls = world.base / "calls.log"

    def dies_at(commits: int) -> None:
        left = commits

        def step(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)

        def hook(store: Hooked) -> None:
            store.before, store.after = (None, step) if landed else (step, None)

        world.hook = hook

    async def noting(attempt: Attempt, channel: Channel) -> Outcome:
        with calls.open("a") as log:
            log.write(f"{attempt.item.key}\n")
        return await answer(attempt, channel)

    for commits in range(30):
        world.clear()
        world.items(*names(12))
        assert world.go(overwrite=True).exit_code == 0
        world.items(*names(12)[1:], "new", k003=1, k004=2)
        calls.unlink(missing_ok=True)
        pid = os.fork()
        if not pid:
            dies_at(commits)
            world.go(noting)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        world.hook = lambda store: None
        assert world.go(noting).exit_code == 0
        called = Counter(calls.read_text().split())
        assert set(called) == {"k003", "k004", "new"} and called.total() <= 4, (commits, called)
        if not code:
            assert called.total() == 3 and commits > 3
            return
    raise AssertionError("it never came to its end")


def test_the_preview_of_a_fresh_run_over_a_damaged_state_is_that_of_a_first_run(in_folder: World) -> None:
    in_folder.items("a", "b")
    assert in_folder.go(limit=1).exit_code == 4
    (in_folder.folder / "state.json").write_bytes(b"{}")
    prospect = plan_launch(in_folder.job, in_folder.store(), agent="v1", options=Options(fresh=True))
    assert prospect.planned.plan.run == 2 and not prospect.refusal
    assert in_folder.go(fresh=True).exit_code == 0
    assert [one.plan.run for one in in_folder.events if isinstance(one, Planned)] == [2]

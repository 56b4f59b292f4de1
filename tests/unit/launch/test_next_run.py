"""From one run to the next: what is kept, what runs, and under which generation and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.context import idempotency_key
from agentrun.agents.messages import Used
from agentrun.checkpoint.summary import Summary
from agentrun.errors import ItemsError, PlanError
from agentrun.events import Planned
from agentrun.job.job import ItemsSpec
from agentrun.job.options import Options
from agentrun.launch.preview import plan_launch
from agentrun.money.usage import Reported
from agentrun.values.units import parse_allowance
from unit.launch.bench import Script, World, answer, counting, failing, intact, names, only

MANY = 40


class Seen:
    """An agent that notes the generation and the key of each attempt."""

    def __init__(self, script: Script = answer) -> None:
        self.script = script
        self.generations: dict[str, int] = {}
        self.keys: dict[str, str] = {}

    async def __call__(self, attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        self.generations[key] = attempt.generation
        self.keys[key] = idempotency_key(attempt.series, key, attempt.generation)
        return await self.script(attempt, channel)


def finished(world: World, *keys: str, **options: Any) -> Summary:
    world.items(*(keys or names(MANY)))
    summary = world.go(**options)
    assert summary.exit_code == 0
    return summary


def test_a_second_start_runs_nothing_and_files_nothing(world: World) -> None:
    first = finished(world)
    again = world.go()
    assert again.nothing_to_do and again.exit_code == 0 and world.ran == []
    assert (again.run_id, again.ran, again.kept) == (first.run_id, 0, MANY)
    assert len(world.store().summaries()) == 1 and not any(isinstance(one, Planned) for one in world.events)


def test_only_what_is_new_changed_or_failed_runs_and_the_results_are_those_of_a_fresh_run(world: World) -> None:
    world.job = replace(world.job, allow_failures=parse_allowance("1"))
    world.items(*names(MANY))
    assert world.go(only({"k005": failing()})).exit_code == 0
    now = [*names(MANY)[2:], "new1", "new2"]
    world.items(*now, k010=1, k011=2)
    seen = Seen()
    summary = world.go(seen)
    assert summary.exit_code == 0
    assert sorted(world.ran) == ["k005", "k010", "k011", "new1", "new2"]
    assert (summary.ran, summary.kept, summary.total) == (5, MANY - 2 - 3, MANY)
    assert seen.generations == {"k005": 0, "k010": 1, "k011": 1, "new1": 0, "new2": 0}
    plan = world.planned().plan
    assert (plan.kept, plan.run, plan.changed, plan.failed, plan.gone) == (MANY - 5, 2, 2, 1, 2)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()
    assert world.go().nothing_to_do


def test_runs_of_a_series_share_the_keys_of_side_effects_and_a_fresh_run_has_others(world: World) -> None:
    world.job = replace(world.job, allow_failures=parse_allowance("1"))
    world.items("a", "b")
    first, second, third = Seen(only({"b": failing()})), Seen(), Seen()
    one = world.go(first)
    two = world.go(second)
    assert (one.series, two.series) == ("", one.run_id) and two.number == one.number + 1
    assert second.keys == {"b": first.keys["b"]}
    three = world.go(third, fresh=True)
    assert three.series == "" and three.number == two.number + 1
    assert third.keys.keys() == first.keys.keys() and not set(third.keys.values()) & set(first.keys.values())


def test_dying_at_any_commit_of_the_next_run_and_resuming_runs_nothing_twice(world: World) -> None:
    for landed in (False, True):
        for commits in range(1, 7):
            world.clear()
            finished(world, *names(12), overwrite=True)
            world.items(*names(12)[1:], "new", k003=1, k004=2, k005=3)
            seen = Seen()
            world.job = replace(world.job, max_age_seconds=None)
            world.crash(seen, commits=commits, landed=landed)
            ran = list(world.ran)
            summary = world.go(seen)
            assert summary.exit_code == 0
            both = [*ran, *world.ran]
            assert set(both) <= {"k003", "k004", "k005", "new"} and len(both) <= 5
            assert seen.generations == {"k003": 1, "k004": 1, "k005": 1, "new": 0}
            expected = world.expected(directory=f"fresh-{commits}-{landed}")
            assert (world.base / "out.jsonl").read_bytes() == expected


def test_what_runs_again_on_purpose_has_a_new_generation_wherever_the_launch_dies(world: World) -> None:
    for landed in (False, True):
        for commits in range(1, 6):
            world.clear()
            finished(world, *names(3), overwrite=True)
            seen = Seen()
            world.crash(seen, commits=commits, landed=landed, rerun="all")
            ran = len(world.ran)
            assert world.go(seen).exit_code == 0
            assert seen.generations == dict.fromkeys(names(3), 1) and ran + len(world.ran) <= 4


def test_results_of_an_older_agent_are_kept_and_counted_and_run_again_on_request(world: World) -> None:
    finished(world, agent="v1")
    kept = world.go(agent="v2")
    assert kept.nothing_to_do and kept.kept_old_agent == MANY
    world.items(*names(MANY), "new")
    some = world.go(agent="v2")
    assert (some.ran, some.kept, some.kept_old_agent) == (1, MANY, MANY)
    assert world.planned().plan.kept_old_agent == MANY
    seen = Seen()
    assert world.go(seen, agent="v2", rerun="old-agent").exit_code == 0
    assert world.ran == names(MANY) and set(seen.generations.values()) == {1}
    assert world.go(agent="v2", rerun="old-agent").nothing_to_do


def test_rerun_also_gives_up_results_of_an_unfinished_run(world: World) -> None:
    world.items(*names(6))
    assert world.go(agent="v1", limit=3).exit_code == 4
    seen = Seen()
    assert world.go(seen, agent="v2", rerun="old-agent").exit_code == 0
    assert seen.generations == {**dict.fromkeys(names(6), 0), **dict.fromkeys(names(3), 1)}


def test_results_made_with_other_params_run_again(world: World) -> None:
    world.job = replace(world.job, file=world.base / "job.toml", params={"tone": "kind"})
    finished(world, "a", "b")
    assert world.go().nothing_to_do
    world.job = replace(world.job, params={"tone": "stern"})
    assert world.go().exit_code == 0 and world.ran == ["a", "b"]
    assert world.planned().plan.other_params == 2
    assert world.go().nothing_to_do


def test_results_older_than_max_age_run_again_but_none_that_a_person_corrected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unit.launch.test_people import message, post, seq_of

    finished(world, "a", "b", "c")
    post(world, message(world, "edit", "b", seq=seq_of(world, "b"), output="by hand"))
    assert world.go().exit_code == 0 and world.ran == []
    world.job = replace(world.job, max_age_seconds=3600.0)
    assert world.go().nothing_to_do
    world.job = replace(world.job, max_age_seconds=0.0)
    seen = Seen()
    assert world.go(seen).exit_code == 0
    assert seen.generations == {"a": 1, "c": 1}
    assert world.planned().plan.too_old == 2
    assert {line["key"]: line["output"] for line in world.results()}["b"] == "by hand"


def test_a_rotating_inbox_needs_no_word_and_a_folder_that_is_not_there_does(world: World) -> None:
    finished(world, *names(10))
    world.items(*(f"n{n}" for n in range(10)))
    assert world.go().exit_code == 0 and len(world.ran) == 10
    world.items("n0", "n1")
    with pytest.raises(PlanError, match="--allow-gone"):
        world.go()
    world.items()
    with pytest.raises(ItemsError):
        world.go()
    world.items("n0", "n1")
    assert world.go(allow_gone=True).exit_code == 0 and world.ran == []
    assert [line["index"] for line in world.results()] == [0, 1]


def test_items_that_only_moved_make_new_results_and_run_nothing(world: World) -> None:
    finished(world, "a", "b", "c")
    world.items("c", "a", "b")
    assert world.go().exit_code == 0 and world.ran == []
    assert (world.base / "out.jsonl").read_bytes() == world.expected()
    assert world.go().nothing_to_do


def test_a_missing_output_is_written_again_and_a_new_one_is_a_new_run(world: World) -> None:
    first = finished(world, "a", "b")
    before = (world.base / "out.jsonl").read_bytes()
    (world.base / "out.jsonl").unlink()
    assert world.go().nothing_to_do and (world.base / "out.jsonl").read_bytes() == before
    world.job = replace(world.job, output="other.jsonl")
    second = world.go()
    assert second.run_id != first.run_id and world.ran == []
    assert (world.base / "other.jsonl").read_bytes() == before


def test_another_task_under_the_name_of_a_finished_run_is_refused_without_a_job_file(world: World) -> None:
    finished(world, "a", "b")
    job = world.job
    prompt = {"agent": None, "prompt": "{v}", "model": "openai:m"}
    for change in ({"agent": "other.py:run"}, {"agent": None, "command": ("true",)}, prompt):
        world.job = replace(job, **change)
        with pytest.raises(PlanError, match="--name"):
            world.go()
    world.job = replace(job, items=ItemsSpec(kind="lines", pattern="items.jsonl"))
    with pytest.raises(PlanError, match="--name"):
        world.go()
    world.job = replace(job, agent="other.py:run", file=world.base / "job.toml")
    assert world.go().nothing_to_do


def test_with_a_carry_items_at_the_end_continue_and_a_change_in_front_takes_a_word(world: World) -> None:
    world.job = replace(world.job, carry=True)
    world.items(*names(20))
    assert world.go(counting).exit_code == 0
    world.items(*names(22))
    assert world.go(counting).exit_code == 0 and world.ran == ["k020", "k021"]
    assert world.results()[-1]["output"]["before"] == [f"value of {key}" for key in names(21)]
    world.items(*names(22), k021=1)
    assert world.go(counting).exit_code == 0 and world.ran == ["k021"]
    world.items(*names(22), k003=1, k021=1)
    with pytest.raises(PlanError, match="--fresh"):
        world.go(counting)
    assert world.go(counting, fresh=True).exit_code == 0 and len(world.ran) == 22


def test_a_failed_item_that_is_left_is_nothing_to_run(world: World) -> None:
    world.job = replace(world.job, allow_failures=parse_allowance("1"))
    world.items("a", "b")
    for _ in range(3):
        assert world.go(only({"b": failing()})).exit_code == 0
        assert "b" in world.ran
    assert world.go(only({"b": failing()})).nothing_to_do
    assert world.go(failed=True).exit_code == 0 and world.ran == ["b"]


def test_the_steps_of_a_failed_item_come_along(world: World) -> None:
    from collections import Counter

    from unit.launch.test_steps import with_steps

    world.job = replace(world.job, allow_failures=parse_allowance("1"), retries=0)
    calls: Counter[str] = Counter()
    world.items("x")

    async def fails(attempt: Attempt, channel: Channel) -> Outcome:
        await with_steps(calls, "a", "b")(attempt, channel)
        return failing("Retry")

    assert world.go(fails).exit_code == 0
    assert world.go(with_steps(calls, "a", "b", "c")).exit_code == 0
    assert world.ran == ["x"] and calls == {"x a 0": 1, "x b 0": 1, "x c 0": 1}


def test_the_preview_says_what_the_launch_does(world: World) -> None:
    finished(world)
    world.items(*names(MANY)[1:], "new", k010=1)
    prospect = plan_launch(world.job, world.store(), agent="v1", options=Options())
    assert not prospect.is_nothing and prospect.refusal == ""
    planned = prospect.planned.plan
    assert world.go().exit_code == 0
    plan = world.planned().plan
    for count in ("kept", "run", "changed", "gone", "moved", "failed", "to_run", "total"):
        assert getattr(plan, count) == getattr(planned, count), count
    assert plan_launch(world.job, world.store(), agent="v1", options=Options()).is_nothing


def test_the_clock_set_back_between_runs_changes_nothing(in_folder: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import time
    from datetime import UTC, datetime

    first = finished(in_folder, "a", "b")

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Earlier:
            return cls(2001, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("agentrun.values.clock.datetime", Earlier)
    monkeypatch.setattr(time, "time_ns", lambda: 978307200 * 10**9)
    in_folder.items("a", "b", "c")
    second = in_folder.go()
    assert second.run_id < first.run_id and second.number == first.number + 1
    store = in_folder.store()
    assert [one.run_id for one in store.summaries()] == [second.run_id, first.run_id]
    for _ in range(4):
        in_folder.items("a", "b", "c", f"d{_}")
        assert in_folder.go().exit_code == 0
    assert (in_folder.folder / "runs" / f"{in_folder.store().summaries()[0].run_id}.jsonl").exists()
    assert in_folder.go().nothing_to_do


def test_a_run_that_an_older_version_finished_is_kept(in_folder: World) -> None:
    finished(in_folder, "a", "b")
    path = next((in_folder.folder / "runs").glob("*.json"))
    import orjson

    values = orjson.loads(path.read_bytes())
    for name in ("number", "series", "ran", "kept", "kept_old_agent", "identity", "place", "spool", "order", "date"):
        del values[name]
    path.write_bytes(orjson.dumps(values))
    assert in_folder.go().nothing_to_do
    in_folder.items("a", "b", "c")
    assert in_folder.go().exit_code == 0 and in_folder.ran == ["c"]


def with_file(world: World) -> Script:
    """An agent that leaves a file beside its output."""

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        out = Path(attempt.work) / "out"
        out.mkdir(parents=True)
        (out / "note.txt").write_text(f"about {attempt.item.key}")
        outcome = await answer(attempt, channel)
        outcome.made_files = True
        return outcome

    return script


def notes(world: World, output: str) -> dict[str, str]:
    """The files that the results name, by their items' keys."""
    lines = [orjson.loads(line) for line in (world.base / output).read_bytes().splitlines()]
    return {line["key"]: (world.base / output).parent.joinpath(line["files"][0]["path"]).read_text() for line in lines}


def test_the_files_of_kept_results_come_along_to_another_output(in_folder: World) -> None:
    world = in_folder
    world.items("a", "b")
    assert world.go(with_file(world)).exit_code == 0
    for output in ("other.jsonl", "deep/other.jsonl"):
        (world.base / output).parent.mkdir(exist_ok=True)
        world.job = replace(world.job, output=output)
        assert world.go(with_file(world)).exit_code == 0 and world.ran == []
        assert notes(world, output) == {"a": "about a", "b": "about b"}
    assert notes(world, "out.jsonl") == {"a": "about a", "b": "about b"}


def test_dying_while_files_come_along_loses_none(in_folder: World) -> None:
    world = in_folder
    for landed in (False, True):
        for commits in range(1, 6):
            world.clear()
            world.job = replace(world.job, output="out.jsonl")
            world.items("a", "b")
            assert world.go(with_file(world), overwrite=True).exit_code == 0
            output = f"other-{commits}-{landed}.jsonl"
            world.job = replace(world.job, output=output)
            world.crash(with_file(world), commits=commits, landed=landed)
            assert world.go(with_file(world)).exit_code == 0 and world.ran == []
            assert notes(world, output) == {"a": "about a", "b": "about b"}


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_an_item_whose_files_are_not_what_they_were_runs_again(in_folder: World, how: str) -> None:
    world = in_folder
    world.items("a", "b")
    assert world.go(with_file(world)).exit_code == 0
    path = world.base / "out.files" / "a" / "note.txt"
    if how == "gone":
        path.unlink()
    else:
        path.write_text("something else")
    seen = Seen(with_file(world))
    assert world.go(seen).exit_code == 0 and seen.generations == {"a": 1}
    assert world.planned().plan.files_missing == 1
    assert notes(world, "out.jsonl") == {"a": "about a", "b": "about b"}
    assert world.go(with_file(world)).nothing_to_do


async def paid(attempt: Attempt, channel: Channel) -> Outcome:
    await channel(Used(Reported(cost=0.25, input_tokens=10, output_tokens=5)))
    return await answer(attempt, channel)


def test_the_books_close_whatever_was_run_again_compacted_or_gone(world: World) -> None:
    world.items(*names(12))
    assert world.go(paid, limit=8).exit_code == 4
    world.items(*names(12)[1:], k003=1, k004=1)
    # Given up by a change, and compacted while it is still to be run.
    assert world.go(paid, limit=1, compact_over_bytes=1, allow_gone=True).exit_code == 4
    world.items(*names(12)[1:], k003=2, k004=1)
    world.crash(paid, commits=2, landed=True, compact_over_bytes=1, allow_gone=True)
    summary = world.go(paid, compact_over_bytes=1, allow_gone=True)
    assert summary.exit_code == 0 and summary.results_cost == 11 * 0.25
    world.items(*names(12)[1:], k003=2, k004=1, k005=9)
    again = world.go(paid)
    assert (again.usage.cost, again.results_cost) == (0.25, 11 * 0.25)


def test_the_books_of_a_new_run_close_where_items_are_gone_and_come_back(world: World) -> None:
    world.items(*names(12))
    assert world.go(paid).usage.cost == 12 * 0.25
    world.items(*names(12)[2:], "new")
    with intact():
        summary = world.go(paid, compact_over_bytes=1)
    assert (summary.exit_code, summary.usage.cost, world.ran) == (0, 0.25, ["new"])

    async def brings_back(attempt: Attempt, channel: Channel) -> Outcome:
        world.items(*names(12)[2:], "newer", "k001")
        return await paid(attempt, channel)

    # One that comes back while the launch runs is run: this run has no record of it.
    world.items(*names(12)[2:], "newer")
    with intact():
        summary = world.go(brings_back)
    assert summary.exit_code == 0 and world.ran == ["newer", "k001"]
    assert (summary.usage.cost, summary.results_cost) == (0.5, 12 * 0.25)

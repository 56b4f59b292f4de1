"""The run's identity, its versions, its output."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agentrun.checkpoint.summary import Summary
from agentrun.errors import JobError, PlanError
from agentrun.job.job import ItemsSpec
from agentrun.job.options import Options
from agentrun.launch.launch import Launch
from unit.launch.bench import (
    FakeExecutor,
    World,
    carried,
    counting,
    interrupted,
    names,
)


def test_compaction_at_launch_keeps_the_results(world: World) -> None:
    expected_of = 3
    world.items(*names(8))
    world.job = replace(world.job, carry=True)
    world.go(counting, limit=6)
    for value in range(expected_of):  # each round supersedes all records
        world.items(*names(8), k000=value)
        assert world.go(counting, limit=6).exit_code == 4
    world.items(*names(8), k000=expected_of - 1)
    before = world.store()
    before.load()
    size = before.size()
    assert world.go(counting, compact_over_bytes=1000, limit=1).exit_code == 4
    after = world.store()
    after.load()
    assert after.size() < size / 2
    assert [record.key for _, record in after.scan()] == names(7)
    assert world.ran == ["k006"]
    assert world.go(counting).exit_code == 0
    assert world.ran == ["k007"]
    assert (world.base / "out.jsonl").read_bytes() == carried(world)


def test_a_launch_that_compacts_writes_the_right_results(world: World) -> None:
    world.items(*names(8))
    for value in range(4):
        world.items(*names(8), **dict.fromkeys(names(6), value))
        assert world.go(limit=6).exit_code == 4
    assert world.go(compact_over_bytes=1000).exit_code == 0
    assert world.ran == ["k006", "k007"]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_versions_of_the_agent_are_counted_and_told(world: World) -> None:
    world.items(*names(6))
    world.go(limit=2)
    world.go(limit=3, agent="v2")
    assert any("results span versions: 2 of v1" in note for note in world.planned().notes)
    found = world.state()
    assert found is not None and found.context.versions == {"v1": 2, "v2": 3}
    assert world.go(agent="v2").versions == {"v1": 2, "v2": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"items": ItemsSpec(kind="lines", pattern="items.jsonl")},
        {"items": ItemsSpec(kind="jsonl", pattern="items.jsonl", key="v")},
        {"agent": "agent.py:other"},
        {"params": {"customer": "acme"}},
    ],
    ids=["items", "key", "agent", "params"],
)
def test_another_job_under_the_name_of_an_unfinished_run_is_refused(world: World, change: dict[str, Any]) -> None:
    interrupted(world, 4, 2)
    before = world.state()
    mine, world.job = world.job, replace(world.job, **change)
    with pytest.raises(PlanError, match="--name"):
        world.go()
    assert world.state() == before
    world.job = mine
    assert world.go().exit_code == 0
    world.job = replace(world.job, **change, file=world.base / "job.toml")
    assert world.go(overwrite=True).exit_code == 0


@pytest.mark.parametrize(
    ("asked", "other", "written"),
    [
        ({"agent": "agent.py:run"}, {"agent": "other.py:run"}, {"agent": "./agent.py:run"}),
        (
            {"command": ("./run.sh", "lib.py"), "agent": None},
            {"command": ("./run.sh", "-v", "lib.py"), "agent": None},
            {"command": ("./lib/../run.sh", "./lib.py"), "agent": None},
        ),
        (
            {"prompt": "Sum up {text}", "model": "openai:m", "agent": None},
            {"prompt": "Translate {text}", "model": "openai:m", "agent": None},
            {"prompt": "Sum up {text}", "model": "openai:n", "agent": None},
        ),
        (
            {"items": ItemsSpec(kind="jsonl", pattern="items.jsonl", key="id")},
            {"items": ItemsSpec(kind="jsonl", pattern="more.jsonl", key="id")},
            {"items": ItemsSpec(kind="jsonl", pattern="./items.jsonl", key="id")},
        ),
    ],
    ids=["agent", "command", "prompt", "items"],
)
def test_the_same_job_written_in_another_way_continues_and_another_is_refused(
    world: World, asked: dict[str, Any], other: dict[str, Any], written: dict[str, Any]
) -> None:
    job = replace(world.job, **asked)
    world.job = job
    interrupted(world, 4, 2)
    world.job = replace(job, **other)
    (world.base / "more.jsonl").write_bytes((world.base / "items.jsonl").read_bytes())
    with pytest.raises(PlanError, match="--name, or start over with --fresh"):
        world.go()
    world.job = replace(job, **written)
    assert world.go().exit_code == 0 and len(world.ran) == 2
    world.job = job
    assert world.go().nothing_to_do


def test_fresh_files_the_old_run_as_abandoned_and_starts_over(world: World) -> None:
    interrupted(world, 4, 2)
    found = world.state()
    assert found is not None
    assert world.go(fresh=True).exit_code == 0
    assert world.ran == names(4)
    store = world.store()
    assert [one.status for one in store.summaries()] == ["finished", "abandoned"]
    assert store.summaries()[1].run_id == found.run_id


def test_what_an_abandoned_run_paid_for_is_kept_in_its_journal(in_folder: World) -> None:
    in_folder.redo_limit_bytes = 16 * 1024
    interrupted(in_folder, 4, 3)
    found = in_folder.state()
    assert found is not None and len(found.outputs) == 3
    assert in_folder.go(fresh=True).exit_code == 0
    journal = in_folder.folder / "runs" / f"{found.run_id}.jsonl"
    assert [orjson.loads(line)["key"] for line in journal.read_bytes().splitlines()] == names(3)


def test_fresh_with_items_from_python_reads_the_new_ones(in_folder: World) -> None:
    in_folder.job = replace(in_folder.job, items=ItemsSpec(kind="python", pattern=""))

    def go(*items: str, **options: Any) -> Summary:
        launch = Launch(
            in_folder.job,
            in_folder.store(),
            agent="v1",
            options=Options(wait_seconds=0, **options),
            items=list(items) or None,
        )
        try:
            assert launch.prepare() is None
            return asyncio.run(launch.work(FakeExecutor()))
        finally:
            launch.close()

    assert go("a", "b", "c", limit=1).exit_code == 4
    assert go("d", "e", fresh=True).exit_code == 0
    assert in_folder.keys() == ["d", "e"]
    # The newest finished run keeps its items, for a launch that is given none.
    assert len(list(in_folder.folder.glob("*.spool"))) == 1
    assert go(fresh=True).exit_code == 0
    assert in_folder.keys() == ["d", "e"]


def test_dying_while_an_old_run_is_abandoned_loses_neither_run(in_folder: World) -> None:
    interrupted(in_folder, 4, 2)
    state = (in_folder.folder / "state.json").read_bytes()
    in_folder.go(fresh=True, limit=1)
    # As if the launch had died between the summary of the old run and clearing its state.
    (in_folder.folder / "state.json").write_bytes(state)
    summary = in_folder.go()
    assert summary.exit_code == 0 and in_folder.ran == names(4)


def test_an_output_that_no_run_of_this_job_wrote_is_refused_before_anything_runs(world: World) -> None:
    world.items("a", "b")
    (world.base / "out.jsonl").write_text("mine\n")
    with pytest.raises(JobError, match="no run of this job wrote it"):
        world.go()
    assert world.ran == [] and (world.base / "out.jsonl").read_text() == "mine\n"
    assert world.go(overwrite=True).exit_code == 0
    assert world.go().exit_code == 0  # now it is our own
    (world.base / "out.jsonl").write_text("edited\n")
    assert world.go().nothing_to_do
    world.items("a", "b", "c")
    with pytest.raises(JobError, match="--overwrite"):
        world.go()


def test_overwrite_is_kept_with_the_run(world: World) -> None:
    world.items("a", "b")
    (world.base / "out.jsonl").write_text("mine\n")
    world.go(overwrite=True, limit=1)
    assert world.go().exit_code == 0


def test_an_output_folder_that_is_not_there_is_made(world: World) -> None:
    world.items("a")
    world.job = replace(world.job, output="not/there/out.jsonl")
    assert world.go().exit_code == 0
    assert (world.base / "not" / "there" / "out.jsonl").is_file()


def test_an_output_folder_that_cannot_be_made_is_told_before_anything_runs(world: World) -> None:
    world.items("a")
    world.job = replace(world.job, output="items.jsonl/out.jsonl")
    with pytest.raises(JobError, match="is not a folder"):
        world.go()
    assert world.ran == [] and world.state() is None


def test_resume_goes_on_or_says_that_there_is_nothing_to_do(world: World) -> None:
    world.items("a", "b")
    with pytest.raises(PlanError, match="has no run to resume"):
        world.go(resume=True)
    world.go(limit=1)
    assert world.go(resume=True).exit_code == 0
    assert world.ran == ["b"]
    summary = world.go(resume=True)
    assert summary.exit_code == 0 and summary.nothing_to_do and summary.total == 2
    assert world.ran == []

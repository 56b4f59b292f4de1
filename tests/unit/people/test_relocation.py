"""Which paths of a job are others in another place."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.job.fields import Layer
from agentrun.job.kept import KeptJob
from agentrun.people.relocation import Relocation, relocate_checkpoint, relocate_job, relocate_summary

HERE = Path("/srv/x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/home/ada/work/out/r.jsonl", "/srv/x/out/r.jsonl"),
        ("/home/ada/work", "/srv/x"),
        ("/mnt/work/r.jsonl", "/srv/x/r.jsonl"),
        # As a launch would write it; nothing is written there before that.
        ("/home/ada/work/../out/r.jsonl", "/srv/x/../out/r.jsonl"),
        ("/data/r.jsonl", None),
        ("/home/ada/workshop/r.jsonl", None),
        ("r.jsonl", None),
    ],
)
def test_a_path_in_one_of_the_jobs_folders_is_one_here(old: str, new: str | None) -> None:
    places = Relocation(("/home/ada/work", "", "/mnt/work"), HERE)
    assert places.path(old) == (Path(new) if new is not None else None)


def test_a_run_that_is_resumed_here_has_no_place_yet_and_nothing_of_it_is_in_place() -> None:
    context = RunContext(
        launches=2, date="2026-05-04", place=".", output="/old/r.jsonl", completing="/old/r.jsonl", base="/old"
    )
    before = Checkpoint(job="triage", run_id="1", seq=7, context=context)
    after = relocate_checkpoint(before, "new {name}", lambda path: path.replace("/old", "/new"), has_file=True)
    assert (after.job, after.seq) == ("new {name}", 7)
    assert (after.context.place, after.context.completing, after.context.output) == ("", "", "/new/r.jsonl")
    assert after.context.kept == {"name": "new {{name}}"}
    # So that a start under the name of the new folder is told.
    assert after.context.base == "/old"
    assert before.context.output == "/old/r.jsonl"
    assert relocate_checkpoint(before, "x", str, has_file=False).context.kept == {}


def test_the_summary_of_a_run_names_its_output_and_list_here() -> None:
    output = WrittenOutput("/old/out", 1, "0" * 64, "folder", "{key}.md", "1.written")
    before = Summary(job="triage", run_id="1", place="/old", output=output)
    after = relocate_summary(before, "new", lambda path: path.replace("/old", "/new"), {"1.written": "2.written"})
    assert (after.job, after.place) == ("new", "") and after.output is not None
    assert (after.output.path, after.output.listed) == ("/new/out", "2.written")
    assert relocate_summary(Summary(run_id="1"), "new", str, {}).output is None


def test_what_was_asked_is_asked_here() -> None:
    places = Relocation(("/home/ada/work",), HERE)
    with_file = KeptJob(base=Path("/home/ada/work"), file=Path("/home/ada/work/job.toml"), layer=Layer("kept"))
    assert relocate_job(with_file, "old", places, was="old") == KeptJob(
        base=HERE, file=Path("/srv/x/job.toml"), layer=Layer("kept")
    )
    flags = KeptJob(base=Path("/home/ada/work"), layer=Layer("kept", {"name": "old", "command": ["cat"]}))
    moved = relocate_job(flags, "new", places, was="old")
    assert moved.base == HERE and moved.layer.values == {"name": "new", "command": ["cat"]}


@pytest.mark.parametrize(
    ("kept", "name", "was", "values"),
    [
        ({}, "old", "old", {}),
        ({}, "new", "old", {"name": "new"}),
        ({"name": "old"}, "old", "old", {"name": "old"}),
        ({"name": "old", "params": {"a": "1"}}, "new", "old", {"name": "new", "params": {"a": "1"}}),
    ],
)
def test_a_name_that_is_not_the_job_files_own_comes_along(
    kept: dict[str, object], name: str, was: str, values: dict[str, object]
) -> None:
    before = KeptJob(base=Path("/home/ada"), file=Path("/home/ada/job.toml"), layer=Layer("kept", kept))
    moved = relocate_job(before, name, Relocation(("/home/ada",), HERE), was=was)
    assert moved.layer.values == values

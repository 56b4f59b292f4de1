"""Results as CSV and as a folder, run after run."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.errors import JobError
from agentrun.job.options import Options
from agentrun.launch.preview import plan_launch
from unit.launch.bench import World, failing, only
from unit.launch.test_people import message, post, seq_of


def as_csv(world: World) -> World:
    world.job = replace(world.job, output="out.csv")
    return world


def as_folder(world: World) -> World:
    world.job = replace(world.job, output="out/{key}.md")
    return world


def files(world: World) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((world.base / "out").iterdir())}


def file_of(value: object) -> str:
    return f'{{"of":"value of {value}"}}\n' if isinstance(value, str) else f'{{"of":{value}}}\n'


# ---- CSV


def test_results_are_written_as_csv_and_partial_ones_too(world: World) -> None:
    as_csv(world).items("a", "b")
    assert world.go(only({"b": failing()})).exit_code == 1
    assert (world.base / "out.partial.csv").read_text() == "index,key,of\n0,a,value of a\n"
    summary = world.go()
    assert summary.exit_code == 0 and not (world.base / "out.partial.csv").exists()
    assert (world.base / "out.csv").read_text() == "index,key,of\n0,a,value of a\n1,b,value of b\n"
    assert summary.output is not None and summary.output.form == "csv"


def test_a_csv_that_is_missing_is_written_again_and_one_with_changes_too(world: World) -> None:
    as_csv(world).items("a", "b")
    world.go()
    (world.base / "out.csv").unlink()
    assert world.go().nothing_to_do
    assert (world.base / "out.csv").read_text() == "index,key,of\n0,a,value of a\n1,b,value of b\n"
    world.items("a", "b", b=5)
    assert world.go().exit_code == 0 and world.ran == ["b"]
    assert (world.base / "out.csv").read_text().endswith("1,b,5\n")


def test_another_form_is_another_output_and_nothing_runs_for_it(world: World) -> None:
    world.items("a")
    world.go()
    as_csv(world)
    summary = world.go()
    assert (summary.exit_code, summary.ran, world.ran) == (0, 0, [])
    as_folder(world)
    assert world.go().exit_code == 0 and world.ran == []
    assert files(world) == {"a.md": file_of("a")}


def test_json_lines_that_an_older_version_wrote_under_a_csv_name_are_replaced(in_folder: World) -> None:
    as_csv(in_folder).items("a")
    in_folder.go()
    (summary_path,) = (in_folder.folder / "runs").glob("*.json")
    summary_path.write_text(summary_path.read_text().replace('"form": "csv"', '"form": "jsonl"'))
    assert not in_folder.go().nothing_to_do and in_folder.ran == []


# ---- a folder


def test_each_item_has_a_file_and_the_next_run_writes_only_what_differs(world: World) -> None:
    as_folder(world).items("a", "b/c", "d")
    summary = world.go()
    assert summary.output is not None
    assert (summary.output.path, summary.output.form) == (str(world.base / "out"), "folder")
    assert files(world) == {"a.md": file_of("a"), "b_c.md": file_of("b/c"), "d.md": file_of("d")}
    assert world.go().nothing_to_do
    world.items("a", "new", "b/c", a=7)
    assert world.go(allow_gone=True).exit_code == 0 and world.ran == ["a", "new"]
    assert files(world) == {"a.md": file_of(7), "b_c.md": file_of("b/c"), "new.md": file_of("new")}


def test_a_file_that_is_missing_is_written_again_when_there_is_nothing_to_run(world: World) -> None:
    as_folder(world).items("a", "b")
    world.go()
    (world.base / "out" / "a.md").unlink()
    (world.base / "out" / "b.md").write_text("edited")
    assert world.go().nothing_to_do
    assert files(world) == {"a.md": file_of("a"), "b.md": "edited"}


def test_edits_and_redo_after_the_end_are_written(world: World) -> None:
    as_folder(world).items("a", "b")
    world.go()
    post(world, message(world, "edit", "b", seq=seq_of(world, "b"), output="by hand"))
    assert world.go().exit_code == 0 and world.ran == []
    assert files(world) == {"a.md": file_of("a"), "b.md": "by hand\n"}
    as_csv(world)
    assert world.go().exit_code == 0 and world.ran == []
    assert (world.base / "out.csv").read_text() == "index,key,of,output\n0,a,value of a,\n1,b,,by hand\n"


def test_files_of_finished_items_are_there_though_others_failed(world: World) -> None:
    as_folder(world).items("a", "b")
    summary = world.go(only({"b": failing()}))
    assert (summary.exit_code, summary.partial) == (1, str(world.base / "out"))
    assert files(world) == {"a.md": file_of("a")}
    assert world.go().exit_code == 0
    assert files(world) == {"a.md": file_of("a"), "b.md": file_of("b")}


def test_a_file_that_is_not_ours_is_refused_before_anything_runs(world: World) -> None:
    as_folder(world).items("a", "b")
    (world.base / "out").mkdir()
    (world.base / "out" / "b.md").write_text("mine")
    prospect = plan_launch(world.job, world.store(), agent="v1", options=Options())
    assert "b.md: already exists" in prospect.refusal
    with pytest.raises(JobError, match=r"b\.md: already exists"):
        world.go()
    assert world.ran == [] and files(world) == {"b.md": "mine"}
    assert world.go(overwrite=True).exit_code == 0
    assert files(world) == {"a.md": file_of("a"), "b.md": file_of("b")}


def test_a_file_that_appears_while_the_run_is_at_work_keeps_it_open(world: World) -> None:
    as_folder(world).items("a")

    def interfere() -> None:
        (world.base / "out").mkdir()
        (world.base / "out" / "a.md").write_text("mine")

    summary = world.go(prepared=interfere)
    assert summary.exit_code == 4 and files(world) == {"a.md": "mine"}
    assert shlex.split(summary.flags) == ["-o", str(world.base / f"out.{summary.run_id}" / "{key}.md")]
    world.job = replace(world.job, output="other/{key}.md")
    assert world.go().exit_code == 0 and world.ran == []
    assert (world.base / "other" / "a.md").read_text() == file_of("a")


def test_the_plan_tells_of_names_that_would_be_the_same(world: World) -> None:
    as_folder(world).items("A", "a")
    world.go()
    assert any("share a file name" in note and "(A, a)" in note for note in world.planned().notes)
    assert len(files(world)) == 2


def test_going_back_to_a_folder_finds_our_own_files_there(world: World) -> None:
    as_folder(world).items("a", "b")
    world.go()
    world.job = replace(world.job, output="other/{key}.md")
    world.go()
    as_folder(world).items("a", "b", a=1)
    assert world.go().exit_code == 0
    assert files(world) == {"a.md": file_of(1), "b.md": file_of("b")}


def test_nothing_is_written_outside_of_the_folder_whatever_the_keys(world: World, tmp_path: Path) -> None:
    keys = ["../../up", "/etc/abs", "..", "x" * 900, "\x1b[31m", ".hidden", "CON", "a/../../b"]
    as_folder(world).items(*keys)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert world.go().exit_code == 0
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    ours = {path for path in new if ".agentrun" not in path.parts}
    assert len(ours) == len(keys) and all(path.parent == world.base / "out" for path in ours)

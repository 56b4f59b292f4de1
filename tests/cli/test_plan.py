"""--plan: what would be done, and nothing is."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def tree(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_plan_changes_nothing_on_disk(agentrun: Run, job: Path) -> None:
    before = tree(job)
    ended = agentrun("start", "work", "--plan", "-j", "2", "--timeout", "2m")
    assert ended.returncode == 0 and ended.stderr == ""
    assert "work: would start a new run of 3 items" in ended.stdout
    assert "items/a.txt, items/b.txt, items/c.txt" in ended.stdout
    assert "work/work.results.jsonl" in ended.stdout and "2 at a time, 2m per attempt, 3 retries" in ended.stdout
    assert tree(job) == before


def test_the_first_items_command_is_shown_as_it_would_be_run(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "a b.txt").touch()
    ended = agentrun("start", "--items", "*.txt", "--plan", "--json", "--", "cat", "--", "{path}")
    assert json.loads(ended.stdout)["argv"] == ["cat", "--", str(tmp_path / "a b.txt")]
    shown = agentrun("start", "--items", "*.txt", "--plan", "--", "cat", "{path}")
    assert f"cat '{tmp_path}/a b.txt'" in shown.stdout


def test_a_plan_tells_what_is_kept_changed_new_and_gone_and_what_is_refused(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work", "--limit", "2").returncode == 4
    (job / "items" / "a.txt").unlink()
    (job / "items" / "b.txt").write_text("another")
    (job / "items" / "d.txt").write_text("new")
    before = tree(job)
    ended = agentrun("resume", "work", "--plan")
    assert ended.returncode == 0 and tree(job) == before
    assert "kept 0, to run 2" in ended.stdout
    assert "changed, run again: 1 (items/b.txt)" in ended.stdout
    assert "gone from the source, left out: 1 (items/a.txt)" in ended.stdout
    assert "this launch would be refused" in ended.stdout and "--allow-gone" in ended.stdout
    allowed = json.loads(agentrun("resume", "work", "--plan", "--json", "--allow-gone").stdout)
    assert allowed["refused"] is None
    assert {kind: count for kind, count in allowed["counts"].items() if count} == {"run": 2, "changed": 1, "gone": 1}


def test_items_from_standard_input_are_not_read_for_a_plan(agentrun: Run, tmp_path: Path) -> None:
    ended = agentrun("start", "--name", "n", "--items", "-", "--plan", "--", "echo", "{}", stdin="1\n")
    assert ended.returncode == 0 and "standard input" in ended.stdout and "are read at the start" in ended.stdout
    assert not (tmp_path / ".agentrun").exists()


def test_after_a_finished_run_the_plan_counts_in_what_people_posted(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work").returncode == 0
    assert agentrun("redo", "work", "items/b.txt").returncode == 0
    before = tree(job)
    for command in ("start", "resume"):
        ended = agentrun(command, "work", "--plan")
        assert ended.returncode == 0 and tree(job) == before
        assert "would start a new run, with the results of the run of" in ended.stdout
        assert "kept 2, to run 1" in ended.stdout
    assert "kept 2, to run 1" in agentrun("start", "work").stderr

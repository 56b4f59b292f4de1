"""--plan: what would be done, and nothing is."""

from __future__ import annotations

import json
import re
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
    assert "  kept 0, to run 3\n" in ended.stdout
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
        assert "work: would start a new run, 1 of 3 items to run\n" in ended.stdout
        assert re.search(r"^  kept from the run of \d\d:\d\d: 2 · redo 1$", ended.stdout, re.MULTILINE)
        assert "    redo: items/b.txt\n" in ended.stdout
    said = agentrun("start", "work").stderr
    assert "work: a new run, 1 of 3 items to run → " in said and ": 2 · redo 1\n" in said


def test_after_a_finished_run_the_plan_is_one_line_of_counts_the_same_before_and_at_the_start(
    agentrun: Run, job: Path
) -> None:
    assert agentrun("start", "work").returncode == 0
    (job / "items" / "a.txt").unlink()
    (job / "items" / "b.txt").write_text("another")
    for name in ("d", "e"):
        (job / "items" / f"{name}.txt").write_text("new")
    line = re.compile(r"^  kept from the run of \d\d:\d\d: 1 · new 2 · changed 1 · gone 1$", re.MULTILINE)
    assert line.search(agentrun("start", "work", "--plan").stdout)
    planned = json.loads(agentrun("start", "work", "--plan", "--json").stdout)
    counts = {kind: count for kind, count in planned["counts"].items() if count}
    assert counts == {"kept": 1, "run": 2, "new": 2, "changed": 1, "gone": 1, "moved": 1} and planned["to_run"] == 3
    ended = agentrun("start", "work")
    assert line.search(ended.stderr) and "  3 run, 1 kept\n" in ended.stderr


def test_what_only_leaves_for_another_launch_is_not_counted_as_to_run(agentrun: Run, job: Path) -> None:
    left = "left for another launch"
    planned = agentrun("start", "work", "--plan", "--only", "items/a.txt").stdout
    assert "of 3 items" in planned and f"  {left}: 2\n" in planned
    assert agentrun("start", "work", "--only", "items/a.txt").returncode == 4
    planned = agentrun("start", "work", "--plan", "--only", "items/b.txt").stdout
    assert "  kept 1, to run 1\n" in planned and f"  {left}: 1\n" in planned
    assert agentrun("start", "work").returncode == 0
    for name in ("a", "b"):
        (job / "items" / f"{name}.txt").write_text("another")
    words = ("start", "work", "--only", "items/a.txt")
    planned = agentrun(*words, "--plan").stdout
    assert (
        "work: would start a new run, 1 of 3 items to run\n" in planned and f": 1 · changed 2 · {left} 1\n" in planned
    )
    assert json.loads(agentrun(*words, "--plan", "--json").stdout)["to_run"] == 1
    assert "work: a new run, 1 of 3 items to run → " in agentrun(*words).stderr


def test_an_older_agent_is_named_with_the_command_that_reruns_its_results(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "work").returncode == 0
    version = json.loads(agentrun("start", "work", "--plan", "--json").stdout)["version"]
    (job / "agent.py").write_text((job / "agent.py").read_text().replace("upper()", "lower()"))
    by = f"  by an older agent: 3 of version {version}\n  to run those again: agentrun start "
    said = agentrun("start", "work", "--plan").stdout
    assert said.startswith("work: nothing to run, 3 results kept from the run of ") and by in said
    ended = agentrun("start", "work")
    assert ended.returncode == 0 and by in ended.stderr and "[y/N]" not in ended.stderr
    assert len((job / "ran.log").read_text().splitlines()) == 3
    (job / "items" / "d.txt").write_text("text d")
    assert by in agentrun("start", "work").stderr
    assert len((job / "ran.log").read_text().splitlines()) == 4
    # As it was printed, where it was printed.
    command = next(line for line in ended.stderr.splitlines() if "--rerun" in line).partition(": agentrun ")[2]
    again = agentrun(*command.split())
    assert ": 1 · rerun 3\n" in again.stderr and "  3 run, 1 kept\n" in again.stderr
    assert len((job / "ran.log").read_text().splitlines()) == 7


def test_for_items_that_point_at_their_content_nothing_to_run_says_what_is_compared(
    agentrun: Run, tmp_path: Path
) -> None:
    (tmp_path / "urls.txt").write_text("a\nb\n")
    words = ("start", "--name", "n", "--items", "urls.txt", "--as", "lines", "--", "echo", "{}")
    assert agentrun(*words).returncode == 0
    first, compared, last = agentrun(*words).stderr.splitlines()
    assert first.startswith("n: nothing to run, 2 results kept from the run of ")
    assert compared == "  only the lines are compared, not what they point to, such as files or pages"
    assert last == "  to run everything again: agentrun start n --fresh"


def test_the_plan_names_the_limit_for_tokens(agentrun: Run, job: Path) -> None:
    planned = agentrun("start", "work", "--plan", "--tokens", "100k/min").stdout
    assert "at most 100,000 tokens in 1m" in planned

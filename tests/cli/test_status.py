"""status: the jobs here, or one of them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_without_jobs_it_says_how_to_begin(agentrun: Run) -> None:
    ended = agentrun("status")
    assert ended.returncode == 0 and ended.stdout == "" and "agentrun init" in ended.stderr
    assert json.loads(agentrun("status", "--json").stdout) == []


def test_all_jobs_are_a_table_and_one_is_told_in_detail(agentrun: Run, job: Path) -> None:
    (job / "items" / "b.txt").write_text("bad")
    agentrun("start", "job.toml", cwd=job)
    agentrun("start", "job.toml", "--name", "other", "--limit", "1", cwd=job)
    table = agentrun("status", cwd=job / "items")
    head, other, work = table.stdout.splitlines()
    assert head.split() == ["JOB", "STATE", "DONE", "FAILED", "LAST", "CHECKPOINT"]
    assert other.split()[:4] == ["other", "interrupted", "1/3", "0"]
    assert work.split()[:4] == ["work", "failed", "2/3", "1"]
    one = agentrun("status", "work", cwd=job)
    assert one.stdout.startswith("work: failed, 2 of 3 done, 1 failed\n")
    assert "failed      index 1" in one.stdout and "output      work.results.jsonl" in one.stdout
    assert "to resume:  agentrun resume work" in one.stdout and "2 of version" in one.stdout
    assert json.loads(agentrun("status", "work", "--json", cwd=job).stdout)["counts"]["failed"] == 1
    assert [one["job"] for one in json.loads(agentrun("status", "--json", cwd=job).stdout)] == ["other", "work"]
    outside = agentrun("status", "work/job.toml")
    assert "agentrun resume work --state-dir work/.agentrun" in outside.stdout


def test_a_damaged_state_is_a_status_too(agentrun: Run, job: Path) -> None:
    agentrun("start", "work", "--limit", "1")
    (job / ".agentrun" / "work" / "state.json").write_text("{")
    ended = agentrun("status", "work", cwd=job)
    assert ended.returncode == 0 and "damaged" in ended.stdout and "state.json" in ended.stdout
    assert agentrun("resume", "work").returncode == 65


@pytest.fixture
def jobs(agentrun: Run, job: Path) -> Path:
    """Two unfinished jobs; what the name of one says is no markup."""
    for name in ("plain", "[red]x[bold]"):
        agentrun("start", "job.toml", "--name", name, "--limit", "1", cwd=job)
    return job


def test_watched_on_a_terminal_it_is_drawn_in_place(agentrun: Run, jobs: Path) -> None:
    terminal = Terminal("status", "--watch", cwd=jobs)
    try:
        first = terminal.until("plain         interrupted  1/3")
        assert "[red]x[bold]  interrupted  1/3" in first
        agentrun("resume", "plain", cwd=jobs)
        again = terminal.until("plain         finished     3/3")
        assert "\x1b[2K" in again and "\x1b[1A" in again, "the lines before are not drawn over"
        terminal.interrupt()
        code, last = terminal.end()
    finally:
        terminal.close()
    assert code == 0 and "Traceback" not in last and "\x1b[?25" not in terminal.screen
    assert last.endswith("\n"), "what is typed next is on a line of its own"


def test_watched_on_a_small_terminal_what_has_no_room_is_cut(jobs: Path) -> None:
    terminal = Terminal("status", "--watch", cwd=jobs, COLUMNS="24", LINES="2")
    try:
        screen = terminal.until("...")
        terminal.interrupt()
        assert terminal.end()[0] == 0
    finally:
        terminal.close()
    assert "JOB           STATE     " in screen and "DONE" not in screen and "plain" not in screen


def test_watched_elsewhere_it_is_told_again_when_it_changes(
    agentrun: Run, begin: Callable[..., subprocess.Popen[str]], jobs: Path
) -> None:
    agentrun("resume", "plain", cwd=jobs)
    watching = begin("status", "plain", "--watch", "--state-dir", ".agentrun", cwd=jobs, PYTHONUNBUFFERED="1")
    assert watching.stdout is not None
    assert watching.stdout.readline() == "plain: finished, 3 of 3 done\n"
    watching.send_signal(signal.SIGINT)
    rest, said = watching.communicate(timeout=30)
    assert watching.returncode == 0 and said == "" and "\x1b" not in rest

"""status: the jobs here, or one of them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.terminal import Terminal
from waiting import eventually

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


def test_a_job_that_was_killed_says_so_and_the_next_stop_says_why(
    agentrun: Run, begin: Callable[..., subprocess.Popen[str]], job: Path
) -> None:
    runner = begin("start", "job.toml", cwd=job, UNTIL="released")
    eventually(lambda: (job / "ran.log").exists(), "the first item runs", alive=runner)
    watched = json.loads(agentrun("status", "work", "--json", cwd=job).stdout)
    (item,) = watched["running"]
    assert watched["status"] == "running" and watched["stopped"] is None and watched["why"] == ""
    assert item["key"] == "items/a.txt" and item["since"].endswith("Z") and item["age_seconds"] >= 0
    assert "in flight" in agentrun("status", "work", cwd=job).stdout
    runner.kill()
    runner.wait()
    eventually(lambda: "interrupted" in agentrun("status", "work", cwd=job).stdout, "nobody has the job")
    shown = agentrun("status", "work", cwd=job).stdout
    assert "stopped     killed, or crashed, with 1 item in flight; last checkpoint" in shown
    (job / "released").touch()
    agentrun("resume", "work", "--limit", "1", cwd=job)
    shown = agentrun("status", "work", cwd=job).stdout
    assert "stopped     --limit is reached, " in shown and "to resume:  agentrun resume work\n" in shown
    stopped = json.loads(agentrun("status", "work", "--json", cwd=job).stdout)["stopped"]
    assert (stopped["exit_code"], stopped["next"]) == (4, "agentrun resume work") and stopped["at"].endswith("Z")


def test_ctrl_c_is_told_as_the_reason(agentrun: Run, begin: Callable[..., subprocess.Popen[str]], job: Path) -> None:
    runner = begin("start", "job.toml", "--grace", "0s", cwd=job, UNTIL="released")
    eventually(lambda: (job / "ran.log").exists(), "the first item runs", alive=runner)
    runner.send_signal(signal.SIGINT)
    runner.communicate()
    assert runner.returncode == 130
    assert "stopped     Ctrl-C, " in agentrun("status", "work", cwd=job).stdout


def test_what_was_posted_waits_for_the_next_start(agentrun: Run, job: Path) -> None:
    agentrun("start", "job.toml", cwd=job)
    agentrun("redo", "work", "items/a.txt", "--yes", cwd=job)
    shown = agentrun("status", "work", cwd=job).stdout
    assert "posted      1 redo waits for the next start" in shown and "to apply:   agentrun resume work" in shown
    assert json.loads(agentrun("status", "work", "--json", cwd=job).stdout)["posted"] == {"redo": 1}
    agentrun("resume", "work", cwd=job)
    assert "posted" not in agentrun("status", "work", cwd=job).stdout


def test_all_finds_the_jobs_of_every_folder(agentrun: Run, job: Path, tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    agentrun("start", "job.toml", cwd=job, XDG_STATE_HOME=registry)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    table = agentrun("status", "--all", cwd=elsewhere, XDG_STATE_HOME=registry, HOME=str(tmp_path))
    head, row = table.stdout.splitlines()
    assert head.split()[-1] == "FOLDER" and row.split()[:3] == ["work", "finished", "3/3"] and row.endswith(" ~/work")
    (found,) = json.loads(agentrun("status", "--all", "--json", cwd=elsewhere, XDG_STATE_HOME=registry).stdout)
    assert (found["job"], found["folder"]) == ("work", str(job / ".agentrun" / "work"))
    (job / ".agentrun").rename(job / "moved")
    gone = agentrun("status", "--all", cwd=elsewhere, XDG_STATE_HOME=registry)
    assert (gone.returncode, gone.stdout) == (0, "") and "no jobs are known on this machine" in gone.stderr
    assert list((tmp_path / "registry" / "agentrun" / "places").iterdir()) == []
    refused = agentrun("status", "work", "--all", cwd=job)
    assert refused.returncode == 2 and "give it alone" in refused.stderr


def test_check_and_resume_count_what_is_new_since_a_finished_run(agentrun: Run, job: Path) -> None:
    agentrun("start", "job.toml", cwd=job)
    assert "since then  nothing is new or changed" in agentrun("status", "work", "--check", cwd=job).stdout
    (job / "items" / "a.txt").write_text("another text")
    (job / "items" / "d.txt").write_text("text d")
    shown = agentrun("status", "work", "--check", cwd=job).stdout
    assert "since then  1 new, 1 changed" in shown and "to run:     agentrun start work" in shown
    since = json.loads(agentrun("status", "work", "--check", "--json", cwd=job).stdout)["since"]
    assert (since["new"], since["changed"], since["to_run"]) == (1, 1, 2)
    ended = agentrun("resume", "work", "--json", cwd=job)
    assert ended.returncode == 0 and "nothing to resume; the last run finished" in ended.stderr
    assert "since then:   1 new, 1 changed" in ended.stderr and "agentrun start work" in ended.stderr
    assert json.loads(ended.stdout)["since"]["to_run"] == 2
    for flag in (["--failed"], ["--limit", "1"]):
        refused = agentrun("resume", "work", *flag, cwd=job)
        assert refused.returncode == 2 and "agentrun start work" in refused.stderr
    assert agentrun("status", "--check", cwd=job).returncode == 2


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

"""`start --detach` and `resume --detach`: the launch outlives its command and its terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli.conftest import AGENT, COMMAND, Run, environment
from cli.terminal import Terminal
from waiting import PATIENCE_SECONDS, eventually

TERMINALS, LANES = 20, 4
ON_A_TERMINAL = (
    "import fcntl, os, sys, termios\n"
    "os.setsid()\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)
"""Makes standard input the controlling terminal: closing it then hangs up on everything there."""


pytestmark = pytest.mark.usefixtures("nothing_left")


def state(folder: Path) -> Path:
    return folder / ".agentrun" / folder.name


def is_finished(folder: Path) -> bool:
    return (folder / f"{folder.name}.results.jsonl").exists() and not (state(folder) / "state.json").exists()


def holder(folder: Path) -> int:
    return int(json.loads((state(folder) / "lock").read_text())["pid"])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_it_returns_once_the_first_checkpoint_is_on_disk_and_the_run_finishes(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "--detach", cwd=job, UNTIL="go")
    assert ended.returncode == 0, ended.stderr
    assert "work: 3 items" in ended.stderr and "work: detached (pid " in ended.stderr
    assert "agentrun status work --watch" in ended.stderr and "agentrun stop work" in ended.stderr
    assert (state(job) / "state.json").exists(), "it returned before the first checkpoint"
    assert json.loads((state(job) / "state.json").read_text())["context"]["launches"] == 1
    pid = holder(job)
    assert f"(pid {pid})" in ended.stderr and os.getsid(pid) == pid
    assert all(os.readlink(f"/proc/{pid}/fd/{fd}") == str(state(job) / "launch.log") for fd in (1, 2))
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    (job / "go").touch()
    eventually(lambda: is_finished(job), "the run finishes")
    log = state(job) / "launch.log"
    eventually(lambda: "done: 3 of 3" in log.read_text(), "its last line is in the log")
    assert log.stat().st_mode & 0o777 == 0o600 and "\x1b" not in log.read_text()


def test_stop_and_resume_reach_it(agentrun: Run, job: Path) -> None:
    agentrun("start", "--detach", cwd=job, UNTIL="go")
    busy = agentrun("start", "--detach", cwd=job)
    assert busy.returncode == 75 and "another runner has this job" in busy.stderr
    pid = holder(job)
    assert agentrun("stop", "work", "--now", cwd=job).returncode == 0
    eventually(lambda: is_gone(pid), "the launch is over")
    assert "stopped by SIGTERM" in (state(job) / "launch.log").read_text()
    (job / "go").touch()
    assert agentrun("resume", "work", "--detach", "-q", cwd=job, UNTIL="go").stderr == ""
    eventually(lambda: is_finished(job), "the run finishes")
    assert "stopped by SIGTERM" in (state(job) / "launch.log.1").read_text()


def test_what_is_wrong_is_said_in_the_foreground_with_its_code(agentrun: Run, job: Path) -> None:
    (job / "agent.py").write_text("import nonsense_module\n")
    ended = agentrun("start", "--detach", cwd=job)
    assert ended.returncode == 2 and "nonsense_module" in ended.stderr and "detached" not in ended.stderr
    assert not (state(job) / "launch.log").exists() and not (state(job) / "state.json").exists()
    (job / "agent.py").write_text(AGENT)
    (job / "job.toml").write_text('agent = "agent.py:upper"\n[items]\nfiles = "nothing/*.txt"\n')
    assert agentrun("start", "--detach", cwd=job).returncode == 2
    assert agentrun("resume", "nobody", "--detach", cwd=job).returncode == 2


def test_with_nothing_to_run_it_says_so_and_detaches_nothing(agentrun: Run, job: Path) -> None:
    agentrun("start", cwd=job)
    ended = agentrun("start", "--detach", "--json", cwd=job)
    assert ended.returncode == 0 and "nothing to run" in ended.stderr
    assert json.loads(ended.stdout)["nothing_to_do"] and not (state(job) / "launch.log").exists()


def test_a_plan_is_shown_and_nothing_detached(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "--detach", "--plan", cwd=job)
    assert ended.returncode == 0 and "3" in ended.stdout and not (job / ".agentrun").exists()


def test_json_says_where_it_is(agentrun: Run, job: Path) -> None:
    ended = agentrun("start", "--detach", "--json", "-q", cwd=job)
    said = json.loads(ended.stdout)
    assert said["job"] == "work" and said["log"] == str(state(job) / "launch.log") and said["pid"] > 1
    eventually(lambda: is_finished(job), "the run finishes")


def test_items_may_come_from_standard_input(agentrun: Run, job: Path) -> None:
    words = ["start", "agent.py:upper", "--name", "typed", "--items", "-", "--detach"]
    ended = agentrun(*words, cwd=job, stdin="one\ntwo\n")
    assert ended.returncode == 0, ended.stderr
    results = job / "typed.results.jsonl"
    eventually(results.exists, "the run finishes")
    assert [json.loads(line)["output"] for line in results.read_text().splitlines()] == ["ONE", "TWO"]


def test_nobody_is_asked_after_a_pilot_not_even_where_a_terminal_still_is(agentrun: Run, job: Path) -> None:
    terminal = Terminal("start", "--detach", "--pilot", "2", cwd=job)
    try:
        code, said = terminal.end()
    finally:
        terminal.close()
    assert code == 0 and "the rest:     agentrun resume work, when the pilot is over" in said and "[y/N]" not in said
    log = state(job) / "launch.log"
    eventually(lambda: "the pilot of 2 is over" in log.read_text(), "the pilot is over")
    assert "[y/N]" not in log.read_text()
    eventually(lambda: stopped_by(agentrun, job) == ("pilot", 4), "it stopped there")
    assert agentrun("resume", "work", "--detach", cwd=job).returncode == 0
    eventually(lambda: is_finished(job), "the rest is run")


def test_with_yes_the_rest_runs_after_the_pilot(agentrun: Run, job: Path) -> None:
    for number in range(7):
        (job / "items" / f"{number}.txt").write_text(f"text {number}")
    ended = agentrun("start", "--detach", "--pilot", "6", "--yes", cwd=job)
    assert ended.returncode == 0 and "the rest:" not in ended.stderr
    eventually(lambda: is_finished(job), "everything is run")
    assert "the pilot of 6 is over" in (state(job) / "launch.log").read_text()


def stopped_by(agentrun: Run, job: Path) -> tuple[str, int]:
    stopped = json.loads(agentrun("status", "work", "--json", cwd=job).stdout).get("stopped") or {}
    return stopped.get("by", ""), stopped.get("exit_code", 0)


def test_a_module_in_the_current_folder_takes_no_place_of_ours(agentrun: Run, job: Path) -> None:
    (job / "typer.py").write_text("raise SystemExit('this is not typer')\n")
    (job / "signal.py").write_text("raise SystemExit('this is not signal')\n")
    (job / "job.toml").write_text('command = ["cat"]\n[items]\nfiles = "items/*.txt"\n')
    assert agentrun("start", "--detach", cwd=job).returncode == 0
    eventually(lambda: is_finished(job), "the run finishes")


def test_ctrl_c_before_the_first_checkpoint_ends_it(job: Path, begin: Callable[..., subprocess.Popen[str]]) -> None:
    slow = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(1000)\n"
    (job / "agent.py").write_text(slow)
    process = begin("start", "--detach", cwd=job)
    eventually(lambda: (job / "pid").exists() and (job / "pid").read_text(), "the agent is loaded", alive=process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_SECONDS) == 130
    eventually(lambda: is_gone(int((job / "pid").read_text())), "the launch is over")
    assert not (state(job) / "state.json").exists()


def test_twenty_terminals_are_closed_right_after_and_all_runs_finish(tmp_path: Path) -> None:
    folders = [make_job(tmp_path / f"job{number:02}") for number in range(TERMINALS)]
    with ThreadPoolExecutor(LANES) as lanes:
        # Half of them as soon as the launch has its plan, while the command is still in the foreground.
        said = ["job" if number % 2 else "detached (pid" for number in range(TERMINALS)]
        list(lanes.map(start_and_close, folders, said))
    for folder in folders:
        eventually((state(folder) / "state.json").exists, f"{folder.name} has its first checkpoint")
        assert not is_finished(folder)
        (folder / "go").touch()
    for folder in folders:
        eventually(lambda folder=folder: is_finished(folder), f"{folder.name} finishes")  # type: ignore[misc]
        lines = (folder / f"{folder.name}.results.jsonl").read_text().splitlines()
        assert [json.loads(line)["output"] for line in lines] == ["A", "B"]
        assert (folder / "ran.log").read_text().splitlines() == ["a", "b"]


def make_job(folder: Path) -> Path:
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "items.txt").write_text("a\nb\n")
    (folder / "job.toml").write_text('agent = "agent.py:upper"\n[items]\nlines = "items.txt"\n')
    return folder


def start_and_close(folder: Path, words: str) -> None:
    """Start a detached launch at a shell on a terminal, and close that as soon as it says the words."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, "/bin/sh", "-c", f"{COMMAND} start --detach; sleep 1000"],
        cwd=folder,
        env=environment(UNTIL="go"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while words.encode() not in seen:
        seen += os.read(ours, 65536)
    os.close(ours)
    shell.wait(timeout=PATIENCE_SECONDS)
    assert shell.returncode == -signal.SIGHUP, "the terminal was not a terminal"

"""Killed in the middle and started again, through the real command: what was finished is not run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from waiting import PATIENCE_SECONDS, eventually

AGENTRUN = str(Path(sys.executable).parent / "agentrun")
ITEMS = 50
BEFORE_THE_STOP = 20

# Each attempt leaves a line; from item 20 on it waits for a file, so that the stop finds known items in flight.
PYTHON_AGENT = """
import asyncio, os, time
from pathlib import Path

def begin(item):
    fd = os.open("calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{item.text}\\n".encode())
    os.close(fd)

def is_held(item):
    return int(item.text) >= 20 and not Path("go").exists()

def sync_agent(item):
    begin(item)
    while is_held(item):
        time.sleep(0.01)
    return {"square": int(item.text) ** 2}

async def async_agent(item):
    begin(item)
    while is_held(item):
        await asyncio.sleep(0.01)
    return {"square": int(item.text) ** 2}
"""
SHELL_AGENT = """#!/bin/sh
echo "$1" >> calls.log
while [ "$1" -ge 20 ] && [ ! -e go ]; do sleep 0.01; done
echo "{\\"square\\": $(($1 * $1))}"
"""
AGENTS = {
    "async": 'agent = "agent.py:async_agent"',
    "process": 'agent = "agent.py:sync_agent"',
    "thread": 'agent = "agent.py:sync_agent"\nisolation = "thread"',
    "command": 'command = ["./agent.sh", "{}"]\nparse = "json"',
}


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str, int], Path]:
    def make(kind: str, concurrency: int) -> Path:
        (tmp_path / "agent.py").write_text(PYTHON_AGENT)
        (tmp_path / "agent.sh").write_text(SHELL_AGENT)
        (tmp_path / "agent.sh").chmod(0o755)
        (tmp_path / "items.txt").write_text("".join(f"{n}\n" for n in range(ITEMS)))
        (tmp_path / "job.toml").write_text(
            f'name = "staging"\n{AGENTS[kind]}\n[items]\nlines = "items.txt"\n'
            f'[run]\nconcurrency = {concurrency}\ngrace = "60s"\n'
        )
        return tmp_path

    return make


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [AGENTRUN, "start", "job.toml"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def calls(folder: Path) -> Counter[int]:
    try:
        return Counter(int(line) for line in (folder / "calls.log").read_text().splitlines())
    except FileNotFoundError:
        return Counter()


def is_staged(folder: Path, concurrency: int) -> bool:
    """20 items are checkpointed, and as many as may be are in flight after them."""
    try:
        state = json.loads((folder / ".agentrun/staging/state.json").read_bytes())
    except FileNotFoundError:
        return False
    return state["last_completed"] == BEFORE_THE_STOP - 1 and len(calls(folder)) == BEFORE_THE_STOP + concurrency


def finish(folder: Path) -> None:
    (folder / "go").touch()
    second = start(folder)
    _, errors = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 0, errors
    lines = [json.loads(line) for line in (folder / "staging.results.jsonl").read_text().splitlines()]
    assert lines == [{"index": n, "key": str(n), "output": {"square": n * n}} for n in range(ITEMS)]
    assert not (folder / ".agentrun/staging/state.json").exists()


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("kind", AGENTS)
def test_after_kill_9_only_what_was_in_flight_is_run_again(
    job: Callable[[str, int], Path], kind: str, concurrency: int
) -> None:
    folder = job(kind, concurrency)
    first = start(folder)
    eventually(lambda: is_staged(folder, concurrency), "20 items are done and more begun", alive=first)
    first.kill()
    first.communicate()

    finish(folder)

    counted = calls(folder)
    assert set(counted) == set(range(ITEMS))
    assert all(counted[n] == 1 for n in range(BEFORE_THE_STOP))
    in_flight = range(BEFORE_THE_STOP, BEFORE_THE_STOP + concurrency)
    assert all(counted[n] == 2 for n in in_flight)
    assert all(counted[n] == 1 for n in range(BEFORE_THE_STOP + concurrency, ITEMS))


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_after_a_signal_what_is_in_flight_is_finished_and_nothing_is_run_twice(
    job: Callable[[str, int], Path], kind: str, number: int, code: int
) -> None:
    folder = job(kind, 4)
    first = start(folder)
    eventually(lambda: is_staged(folder, 4), "20 items are done and more begun", alive=first)
    first.send_signal(number)
    (folder / "go").touch()
    _, errors = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == code, errors
    assert "agentrun" in errors and "resume" in errors

    finish(folder)

    assert calls(folder) == Counter(range(ITEMS))


def test_a_second_signal_ends_what_is_in_flight_at_once(job: Callable[[str, int], Path]) -> None:
    folder = job("process", 4)
    first = start(folder)
    eventually(lambda: is_staged(folder, 4), "20 items are done and more begun", alive=first)
    first.send_signal(signal.SIGTERM)
    assert first.stderr is not None
    while "stopped by" not in first.stderr.readline():
        assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 143
    state = json.loads((folder / ".agentrun/staging/state.json").read_bytes())
    assert state["running"] == []

    finish(folder)

    assert all(count == 1 for n, count in calls(folder).items() if n < BEFORE_THE_STOP)


def test_an_agent_that_ignores_everything_does_not_outlive_the_grace_period(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "import signal, time\n"
        "def stubborn(item):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    open('begun', 'w').close()\n"
        "    while True:\n"
        "        time.sleep(1)\n"
    )
    (tmp_path / "items.txt").write_text("one\ntwo\n")
    (tmp_path / "job.toml").write_text(
        'name = "staging"\nagent = "agent.py:stubborn"\n[items]\nlines = "items.txt"\n[run]\ngrace = "1s"\n'
    )
    process = start(tmp_path)
    eventually((tmp_path / "begun").exists, "it begins", alive=process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 143
    assert os.path.exists(tmp_path / ".agentrun/staging/state.json")

"""Every command line of the README is run, and what it shows is what is printed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
AGENTRUN = Path(sys.executable).parent / "agentrun"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def call(command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "agentrun"
    environment = {**os.environ, "TRIAGE_SECONDS": "0", **variables}
    return subprocess.run(
        [str(AGENTRUN), *words[1:]], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def shape(text: str) -> str:
    """What is printed, without what differs from one day to the next."""
    text = re.sub(r"\b\d\d:\d\d\b", "HH:MM", text)
    text = re.sub(r"in [\d.]+s", "in S", text)
    text = re.sub(r"just now|\d+s ago", "AGO", text)
    return re.sub(r"\b(8\d|9\d|1\d\d)\b(?=[/,]|$)", "N", re.sub(r"to run \d+$", "to run N", text, flags=re.MULTILINE))


@pytest.fixture
def triage(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns(".agentrun", "*.results.jsonl", "__pycache__")
    return shutil.copytree(REPOSITORY / "samples/triage", tmp_path / "triage", ignore=ignored)


def shown(session: str, command: str) -> str:
    """What the README shows behind a command."""
    _, _, rest = session.partition(f"$ {command}\n")
    return rest.partition("\n$ ")[0].rstrip("\n")


def test_the_tour_is_what_happens(triage: Path) -> None:
    first, second = blocks("console")
    document = triage / "documents/0150.txt"
    whole = document.read_bytes()
    document.write_bytes(b"")
    environment = {**os.environ, "TRIAGE_SECONDS": "0.05"}
    started = subprocess.Popen(
        [str(AGENTRUN), "start", "job.toml"], cwd=triage, env=environment, stderr=subprocess.PIPE
    )
    state = triage / ".agentrun/triage/state.json"
    while not (state.exists() and re.search(rb'"last_completed": (8\d|9\d)', state.read_bytes())):
        assert started.poll() is None
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    assert started.communicate()[1].decode().splitlines()[0] == shown(first, "agentrun start job.toml").splitlines()[0]

    assert (
        shape(call("agentrun status", triage).stdout.rstrip("\n")).split()
        == shape(shown(first, "agentrun status")).split()
    )
    failed = call("agentrun resume triage", triage)
    assert failed.returncode == 1
    assert shape(failed.stderr.rstrip("\n")) == shape(shown(first, "agentrun resume triage"))
    document.write_bytes(whole)
    done = call("agentrun resume triage", triage)
    assert done.returncode == 0
    assert shape(done.stderr.rstrip("\n")) == shape(shown(second, "agentrun resume triage"))


def test_a_job_of_ones_own_runs_as_it_is_written(tmp_path: Path) -> None:
    assert "`agentrun init mine`" in README
    assert call("agentrun init mine", tmp_path).returncode == 0
    tried = call("agentrun try mine/job.toml", tmp_path)
    assert tried.returncode == 0
    assert len(tried.stdout.splitlines()) == 3
    assert call("agentrun start mine/job.toml", tmp_path).returncode == 0


def test_jobs_without_a_file_start(tmp_path: Path) -> None:
    (tmp_path / "summarise.py").write_text("def summarise(item):\n    return item.text[:10]\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.txt").write_text("a text")
    (tmp_path / "urls.txt").write_text("one\ntwo\n")
    (tmp_path / "fetch.sh").write_text('#!/bin/sh\necho "got $1"\n')
    (tmp_path / "fetch.sh").chmod(0o755)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("agentrun ")]
    assert len(commands) == 2
    for command in commands:
        done = call(command, tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_job_file_is_one(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    values = tomllib.loads(text)
    assert values["run"]["retries"] == 3
    (tmp_path / "job.toml").write_text(text)
    (tmp_path / "agent.py").write_text("def triage(item):\n    return item.text\n")
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/1.txt").write_text("one")
    (tmp_path / "out").mkdir()
    (tmp_path / ".env").write_text("OPENAI_API_KEY=canary\n")
    done = call("agentrun start job.toml", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/results.jsonl").exists()


def test_the_commands_and_exit_codes_are_those_of_the_help(tmp_path: Path) -> None:
    told = call("agentrun --help", tmp_path).stdout
    for name in re.findall(r"^\| `agentrun (\w+)", README, re.MULTILINE):
        assert re.search(rf"^  {name} ", told, re.MULTILINE), name
    for codes in re.findall(r"^\| (\d[\d, ]*) \|", README, re.MULTILINE):
        assert re.search(rf"^ +{codes} ", told, re.MULTILINE), codes

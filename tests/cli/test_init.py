"""init: a job to start from, which runs as it is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_what_it_writes_runs_as_it_is(agentrun: Run, tmp_path: Path) -> None:
    ended = agentrun("init", "my job")
    assert ended.returncode == 0
    assert ended.stderr.splitlines()[-1] == "  agentrun start 'my job/job.toml'"
    assert agentrun("start", "my job/job.toml").returncode == 0
    assert len((tmp_path / "my job" / "results.jsonl").read_text().splitlines()) == 3


def test_it_overwrites_nothing(agentrun: Run, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    ended = agentrun("init")
    assert ended.returncode == 2 and ended.stderr.startswith("agent.py: already exists")
    assert [path.name for path in tmp_path.iterdir()] == ["agent.py"]
    assert (tmp_path / "agent.py").read_text() == "mine"

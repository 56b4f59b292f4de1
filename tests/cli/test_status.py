"""status: the jobs here, or one of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

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
    assert "go on with: agentrun resume work" in one.stdout and "2 of version" in one.stdout
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

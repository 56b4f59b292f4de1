"""The last lines of a launch: every command in them works where the user stands."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def commands(text: str) -> dict[str, list[str]]:
    """The commands that were printed, by their label."""
    found = re.findall(r"^ +(\w[\w ]*):  *agentrun (.*)$", text, re.MULTILINE)
    return {label: shlex.split(command) for label, command in found}


@pytest.fixture
def failed(job: Path, agentrun: Run) -> dict[str, list[str]]:
    """What a launch printed that was started from the folder above, and one of whose items failed."""
    (job / "items" / "b.txt").write_text("bad")
    ended = agentrun("start", "work/job.toml")
    assert ended.returncode == 1 and "  so far:       work/work.results.partial.jsonl" in ended.stderr
    found = commands(ended.stderr)
    assert list(found) == ["the reasons", "to resume", "without them", "or"]
    return found


def test_failed_items_are_looked_at_and_retried(failed: dict[str, list[str]], agentrun: Run, job: Path) -> None:
    reasons = agentrun(*failed["the reasons"])
    assert reasons.returncode == 0 and "it is bad" in reasons.stdout
    (job / "mended").touch()
    ended = agentrun(*failed["to resume"])
    assert ended.returncode == 0 and commands(ended.stderr) == {}


@pytest.mark.parametrize("way", ["without them", "or"])
def test_a_run_is_completed_without_its_failed_items(
    failed: dict[str, list[str]], agentrun: Run, job: Path, way: str
) -> None:
    ended = agentrun(*failed[way])
    assert ended.returncode == 0, ended.stderr
    assert len((job / "work.results.jsonl").read_text().splitlines()) == 2
    if way == "or":
        said = commands(ended.stderr)
        assert list(said) == ["the reasons", "to retry"]
        (job / "mended").touch()
        assert all(agentrun(*command).returncode == 0 for command in said.values())


def test_a_run_that_was_stopped_says_how_to_see_what_there_is(job: Path, agentrun: Run) -> None:
    ended = agentrun("start", "work/job.toml", "--limit", "2")
    said = commands(ended.stderr)
    assert ended.returncode == 4 and list(said) == ["to look", "to resume"]
    assert len(agentrun(*said["to look"]).stdout.splitlines()) == 2
    assert agentrun(*said["to resume"]).returncode == 0

"""samples/review: drafts that wait for approval, through to the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
AGENTRUN = str(Path(sys.executable).parent / "agentrun")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy: results and state are written beside the job file."""
    ignored = shutil.ignore_patterns(".agentrun", "*.results*", "__pycache__", "sent")
    return shutil.copytree(REPOSITORY / "samples/review", tmp_path / "review", ignore=ignored)


def agentrun(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [AGENTRUN, *arguments], cwd=cwd, env={**os.environ}, capture_output=True, text=True, timeout=120, check=False
    )


def results(folder: Path) -> dict[str, Any]:
    lines = (folder / "review.results.jsonl").read_text().splitlines()
    return {line["key"]: line["output"] for line in map(json.loads, lines)}


def sent(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in (folder / "sent").glob("*.txt"))


def test_drafts_wait_are_answered_and_sent_as_they_were_left(folder: Path) -> None:
    started = agentrun("start", "job.toml", cwd=folder)
    assert started.returncode == 3, started.stderr
    assert not (folder / "review.results.jsonl").exists() and not (folder / "sent").exists()

    listed = agentrun("review", "review", "--list", "--json", cwd=folder)
    questions = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [one["key"] for one in questions] == [f"letters/{name}.txt" for name in ("ada", "ben", "cyd", "dora")]
    assert {one["text"] for one in questions} == {"Send this draft?"}
    assert questions[0]["details"]["draft"].startswith("Dear Ada,\n\nthank you for writing to us about your refund.")
    assert questions[0]["steps"] == [{"name": "draft", "output": questions[0]["details"]["draft"]}]

    edit = json.dumps({"draft": "Dear Ada, it is on its way."})
    for arguments in (
        ["letters/ada.txt", "--json", edit],
        ["letters/ben.txt", "--text", "and call him"],
        ["letters/cyd.txt", "--no", "--text", "a fraud", "--by", "Grace"],
    ):
        answered = agentrun("answer", "review", *arguments, cwd=folder)
        assert answered.returncode == 0, answered.stderr
    resumed = agentrun("resume", "review", cwd=folder)
    assert resumed.returncode == 3, resumed.stderr
    assert len(sent(folder)) == 2

    last = agentrun("answer", "review", "--all", "--yes", "--resume", cwd=folder)
    assert last.returncode == 0, last.stderr
    found = results(folder)
    assert list(found) == ["letters/ada.txt", "letters/ben.txt", "letters/dora.txt"]
    assert found["letters/ada.txt"]["sent"] == "Dear Ada, it is on its way."
    assert found["letters/ben.txt"]["note"] == "and call him"
    assert sent(folder) == sorted(one["sent"] for one in found.values())

    shown = agentrun("show", "review", "letters/cyd.txt", "--json", cwd=folder)
    assert json.loads(shown.stdout)["state"] == "skipped" and "refused by Grace: a fraud" in shown.stdout


def test_a_letter_is_done_again_and_a_result_corrected_after_the_end(folder: Path) -> None:
    agentrun("start", "job.toml", cwd=folder)
    assert agentrun("answer", "review", "--all", "--yes", "--resume", cwd=folder).returncode == 0
    assert len(results(folder)) == 4

    edited = agentrun("edit", "review", "letters/ben.txt", "--output", '{"sent": "by phone", "note": ""}', cwd=folder)
    assert edited.returncode == 0, edited.stderr
    again = agentrun("redo", "review", "letters/ada.txt", "--now", cwd=folder)
    assert again.returncode == 3, again.stderr
    last = agentrun("answer", "review", "letters/ada.txt", "--text", "once more", "--resume", cwd=folder)
    assert last.returncode == 0, last.stderr
    found = results(folder)
    assert found["letters/ben.txt"]["sent"] == "by phone"
    assert found["letters/ada.txt"]["note"] == "once more"
    assert found["letters/dora.txt"]["note"] == ""


def test_a_letter_that_nobody_wants_to_answer_is_skipped(folder: Path) -> None:
    agentrun("start", "job.toml", cwd=folder)
    for name in ("ada", "ben", "dora"):
        assert agentrun("answer", "review", f"letters/{name}.txt", "--yes", cwd=folder).returncode == 0
    ended = agentrun("skip", "review", "letters/cyd.txt", "--reason", "a fraud", "--resume", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    assert list(results(folder)) == [f"letters/{name}.txt" for name in ("ada", "ben", "dora")]

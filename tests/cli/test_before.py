"""A run that the version before left unfinished: with steps, an answer, an edit, a question and a redo in its inbox."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]

LEFT = Path(__file__).parents[1] / "data" / "before"


def test_a_run_of_the_version_before_is_resumed_and_finished(agentrun: Run, tmp_path: Path) -> None:
    for name in ("agent.py", "items.txt", "job.toml"):
        shutil.copy(LEFT / name, tmp_path)
    (tmp_path / ".agentrun").mkdir(mode=0o700)
    shutil.copytree(LEFT / "state", tmp_path / ".agentrun" / "before")
    for folder in (tmp_path / ".agentrun" / "before", tmp_path / ".agentrun" / "before" / "inbox"):
        folder.chmod(0o700)
    before = json.loads(agentrun("status", "before", "--json").stdout)
    assert (before["status"], before["counts"]["done"], before["counts"]["waiting"]) == ("interrupted", 6, 1)
    resumed = agentrun("resume", "before")
    assert resumed.returncode == 3, resumed.stderr
    assert "started over on purpose: 1" in resumed.stderr
    assert agentrun("answer", "before", "ask seven", "--no", "--resume").returncode == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {one["key"]: one["output"] for one in found} == {
        "one": {"outline": "ONE"},
        "two": {"outline": "by hand"},
        "ask three": {"sent": True, "draft": "edited"},
        "six": {"outline": "SIX"},
        "ask seven": {"sent": False, "draft": "ASK SEVEN"},
        "eight": {"outline": "EIGHT"},
        "nine": {"outline": "NINE"},
        "ten": {"outline": "TEN"},
    }

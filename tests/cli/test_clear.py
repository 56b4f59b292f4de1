"""agentrun clear --finished, --older-than."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from cli.made import Made
from cli.terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_finished_jobs_are_listed_and_removed_together(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    assert (
        agentrun("start", "job.toml", "--name", "other", "-o", "other.jsonl", "--limit", "1", cwd=job).returncode == 4
    )
    asked = agentrun("clear", "--finished", cwd=job)
    assert asked.returncode == 2 and "--yes" in asked.stderr and "nothing removed" in asked.stderr
    assert "  work  3 items, finished " in asked.stderr and "left: other (unfinished" in asked.stderr
    none = agentrun("clear", "--older-than", "1d", "--yes", cwd=job)
    assert none.returncode == 0 and "no finished jobs older than 1d here" in none.stderr
    assert agentrun("clear", "--finished", "--older-than", "0s", "-y", cwd=job).stderr.endswith("removed 1 job\n")
    assert (job / ".agentrun" / "other" / "state.json").exists()
    assert not (job / ".agentrun" / "work" / "runs").exists() and list(job.glob("*.jsonl"))
    assert agentrun("clear", "--finished", "--yes", cwd=job).returncode == 0


def test_a_person_is_asked(tmp_path: Path) -> None:
    made = Made(tmp_path, ["ada"])
    made.commit(made.entry("ada"), finish=True)
    terminal = Terminal("clear", "--finished", cwd=tmp_path)
    terminal.until("remove them? [y/N]")
    terminal.type("n")
    code, rest = terminal.end()
    assert code == 2 and "nothing removed" in rest and (made.folder / "runs").exists()


def test_nonsense_is_refused(agentrun: Run, job: Path) -> None:
    for words in ([], ["work", "--finished"], ["--older-than", "2 parsecs"], ["--older-than", ""]):
        ended = agentrun("clear", *words, "--yes", cwd=job)
        assert ended.returncode == 2 and "30d" in ended.stderr, ended.stderr

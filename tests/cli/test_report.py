"""agentrun report, and the report after every launch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_report_is_written_where_it_is_asked_for(agentrun: Run, job: Path) -> None:
    (job / "items/b.txt").write_text("bad <b>")
    assert agentrun("start", "job.toml", "-q", cwd=job).returncode == 1
    ended = agentrun("report", "work", cwd=job)
    assert ended.returncode == 0 and ended.stdout == "" and ended.stderr == "work: work.report.html\n"
    page = (job / "work.report.html").read_text()
    assert "Fail: it is bad: bad &lt;b&gt;" in page and "agentrun skip work --failed" in page
    ended = agentrun("report", "work", "--md", cwd=job)
    assert ended.stdout.startswith("<!-- agentrun report -->\n# work: needs you\n") and ended.stderr == ""
    assert agentrun("report", "work", "-o", "r.md", "--run", "1", cwd=job).returncode == 0
    assert (job / "r.md").read_text().startswith("<!-- agentrun report -->")
    ended = agentrun("report", "work", "-o", "job.toml", cwd=job)
    assert ended.returncode == 2 and "is not a report" in ended.stderr
    assert agentrun("report", "work", "--run", "7", cwd=job).returncode == 2


def test_every_launch_writes_the_report_of_the_job_file(agentrun: Run, job: Path) -> None:
    (job / "job.toml").write_text('report = "r/{run_id}.html"\n' + (job / "job.toml").read_text())
    first = agentrun("start", "job.toml", "--limit", "1", cwd=job)
    (path,) = (job / "r").glob("*.html")
    assert first.returncode == 4 and f"  report:       r/{path.name}" in first.stderr
    assert "1 of 3 done" in path.read_text()
    assert agentrun("resume", "work", "-q", cwd=job).stderr == ""
    assert "3 of 3 done" in path.read_text()


def test_a_report_that_cannot_be_written_does_not_change_the_exit_code(agentrun: Run, job: Path) -> None:
    (job / "job.toml").write_text('report = "items/a.html"\n' + (job / "job.toml").read_text())
    (job / "items/a.html").write_text("mine")
    ended = agentrun("start", "job.toml", "-q", cwd=job)
    assert ended.returncode == 0 and "the report could not be written" in ended.stderr
    assert (job / "items/a.html").read_text() == "mine"


def test_a_job_that_could_not_start_has_no_report_and_no_word_of_one(agentrun: Run, job: Path) -> None:
    (job / "rows.jsonl").write_text('{"id": "a"}\n{"id": "a"}\n')
    (job / "job.toml").write_text('report = true\ncommand = ["cat"]\n[items]\njsonl = "rows.jsonl"\nkey = "id"\n')
    ended = agentrun("start", "job.toml", cwd=job)
    assert ended.returncode == 2 and "report" not in ended.stderr and not list(job.glob("*.html"))

"""Where a report goes, and what it never replaces."""

from __future__ import annotations

import stat
import warnings
from pathlib import Path

import pytest

import agentrun
from agentrun.errors import JobError, UsageError
from agentrun.job.build import build_job
from agentrun.job.fields import Layer
from agentrun.report.reading import read_report
from agentrun.report.writing import report_after, write_report
from unit.made import Made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made(tmp_path, ["a"], report="reports/{date}.html")
    made.commit(made.record("a"))
    return made


def job_with(report: object) -> str | None:
    values = {"agent": "a.py:f", "items": {"lines": "x"}, "report": report}
    return build_job([Layer("job.toml", values)], base=Path("/x"), file=None, default_name="j{").report


def test_a_report_is_replaced_by_a_report_and_is_its_owners(made: Made) -> None:
    path = made.base / "new/folder/r.html"
    for _ in range(2):
        write_report(read_report(made.known), path)
    assert path.read_text().startswith("<!doctype html>") and stat.S_IMODE(path.stat().st_mode) == 0o600
    write_report(read_report(made.known), path, markdown=True)
    assert path.read_text().startswith("<!-- agentrun report -->")


def test_the_form_follows_the_name(made: Made) -> None:
    assert write_report(read_report(made.known), made.base / "r.md").read_text().startswith("<!-- agentrun report -->")


def test_another_file_is_never_replaced(made: Made) -> None:
    with pytest.raises(UsageError, match="is not a report, so it is not replaced"):
        write_report(read_report(made.known), made.items)
    (made.base / "link.html").symlink_to(made.items)
    with pytest.raises(UsageError, match="choose another path"):
        write_report(read_report(made.known), made.base / "link.html")
    with pytest.raises(UsageError, match="is a folder"):
        write_report(read_report(made.known), made.base)
    assert made.items.read_text() == "a\n"


def test_after_a_launch_it_goes_where_the_job_file_says(made: Made) -> None:
    path, problem = report_after(made.job, made.known)
    assert problem == "" and path == made.base / f"reports/{made.checkpoint.context.date}.html" and path.exists()


def test_one_that_cannot_be_written_is_told_and_raises_nothing(made: Made) -> None:
    (made.base / "reports").write_text("in the way")
    path, problem = report_after(made.job, made.known)
    assert path is None and "reports" in problem


def test_the_job_file_says_whether_and_where() -> None:
    assert job_with(True) == "j{{.report.html" and job_with(False) is None
    assert job_with("r/{date}-{run_id}.md") == "r/{date}-{run_id}.md"
    for wrong in ("reports/", "job.toml", 3, "{key}.html"):
        with pytest.raises(JobError, match="report"):
            job_with(wrong)


def test_python_writes_it_too_and_warns_where_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def agent(item: agentrun.Item) -> str:
        return item.text

    agentrun.run(agent, items=["a"], name="letters", report=True)
    assert "letters" in (tmp_path / "letters.report.html").read_text()
    (tmp_path / "mine.html").write_text("mine")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert agentrun.run(agent, items=["a", "b"], name="letters", report="mine.html").ok
    assert any("could not be written" in str(one.message) for one in seen)
    assert (tmp_path / "mine.html").read_text() == "mine"

"""agentrun ui: continue starts the jobs of its place and no others; downloads are the command's results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.conftest import Run
from cli.serving import Said, Ui
from needs import require_module
from waiting import eventually

require_module("starlette", "uvicorn", extra="ui")

Serve = Callable[..., Ui]


@pytest.fixture
def serve() -> Iterator[Serve]:
    begun: list[Ui] = []

    def start(cwd: Path, until: str = "") -> Ui:
        begun.append(Ui(cwd, UNTIL=until))
        return begun[-1]

    yield start
    for one in begun:
        said = one.said
        one.close()
        assert "Traceback" not in said and "a bug in agentrun" not in said, said


def asked(said: Said) -> dict[str, str]:
    """What the address that follows says."""
    assert said.status == 303, said.text
    return {name: one for name, (one, *_) in parse_qs(urlsplit(said["location"]).query).items()}


# ---- continue


def test_continue_resumes_the_job_of_this_place_in_the_background(
    job: Path, serve: Serve, agentrun: Run, nothing_left: None
) -> None:
    agentrun("start", "job.toml", "--limit", "1", cwd=job)
    decoys(job, "work")
    ui = serve(job, until="enough")
    said = ui.press(ui.form("/jobs/work", "/resume"))
    (job / "enough").touch()
    assert asked(said)["said"] == "resume"
    assert "continues in the background" in ui.get(said["location"]).text
    eventually(lambda: (job / "work.results.jsonl").exists(), "the run completes")
    assert (job / "ran.log").read_text().split() == ["items/a.txt", "items/b.txt", "items/c.txt"]
    assert not list(job.rglob("decoy.log"))
    eventually(lambda: ui.get("/jobs/work").text.count("/resume") == 0, "there is nothing to continue")
    assert asked(ui.post("/jobs/work/resume", {}))["said"] in ("ended", "resume")
    assert sorted(one.name for one in (job / ".agentrun").iterdir() if one.is_dir()) == ["work"]


def decoys(folder: Path, name: str) -> None:
    """What JOB could mean besides the job of that name, if it were read as a path."""
    agent = 'import pathlib\ndef agent(item): pathlib.Path(__file__).with_name("decoy.log").touch()\n'
    text = f'name = "{name}"\nagent = "decoy.py:agent"\n[items]\nlines = "decoy.txt"\n'
    for where in (folder / name, folder / ".agentrun"):
        where.mkdir(exist_ok=True)
        (where / "decoy.py").write_text(agent)
        (where / "decoy.txt").write_text("x\n")
        (where / "job.toml").write_text(text)
        (where / f"{name}.toml").write_text(text)
    (folder / f"{name}.toml").write_text(text)
    (folder / "decoy.py").write_text(agent)
    (folder / "decoy.txt").write_text("x\n")


def test_no_job_is_started_that_is_not_known_here(job: Path, serve: Serve) -> None:
    ui = serve(job)
    for name in ("work", "job.toml", "agent.py:upper", "..", "%2e%2e", "--help", "work%2fjob.toml"):
        assert ui.post(f"/jobs/{name}/resume", {"job": "job.toml", "x": "y"}).status in (404, 409)
    assert not (job / "ran.log").exists() and not (job / ".agentrun" / "work").exists()


def test_a_launch_that_fails_is_shown_with_what_it_said(job: Path, serve: Serve, agentrun: Run) -> None:
    agentrun("start", "job.toml", "--limit", "1", cwd=job)
    ui = serve(job)
    form = ui.form("/jobs/work", "/resume")
    (job / "agent.py").write_text("def upper(item) <script>alert(1)</script>\n")
    said = ui.press(form)
    assert said.status == 409 and "It did not start" in said.text and "exit code 2" in said.text
    assert "SyntaxError" in said.text and "<script>alert" not in said.text
    (job / "job.toml").write_text("agent = 7\n")
    said = ui.press(form)
    assert said.status == 409 and "job.toml" in said.text
    assert ui.get("/jobs/work").status == 200


# ---- results


def test_downloads_are_what_the_command_gives(job: Path, serve: Serve, agentrun: Run) -> None:
    (job / "items" / "b.txt").write_text('<b>,"quoted"\nüml')
    ui = serve(job)

    def agree() -> None:
        lines = ui.get("/jobs/work/results.jsonl")
        assert lines.text == agentrun("results", "work", cwd=job).stdout
        assert agentrun("results", "work", "-o", "all.csv", "--overwrite", cwd=job).returncode == 0
        table = ui.get("/jobs/work/results.csv")
        assert table.body == (job / "all.csv").read_bytes()
        assert table["content-disposition"] == "attachment; filename*=UTF-8''work.csv"
        assert lines["content-disposition"] == "attachment; filename*=UTF-8''work.jsonl"
        assert table["content-type"].startswith("text/csv")

    agentrun("start", "job.toml", "--limit", "2", cwd=job)
    agree()
    agentrun("resume", "work", cwd=job)
    agree()
    assert len(json.loads(ui.get("/jobs/work/results.jsonl").text.splitlines()[1])["output"]) == 16

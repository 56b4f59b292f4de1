"""What people say to a runner at work is taken in within seconds; what they say to none, by the next launch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.terminal import Terminal
from waiting import PATIENCE_SECONDS, eventually

Run = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]
AGENT = """\
import pathlib, time
from agentrun import Fail

def agent(item, ctx):
    here = pathlib.Path(__file__).parent
    with open(here / "ran.log", "a") as log:
        log.write(item.key + "\\n")
    if item.text == "ask":
        answer = ctx.ask("Go on?", word="yes")
        return [bool(answer), answer["word"]]
    if item.text == "bad":
        raise Fail("it is bad")
    while item.text == "slow" and not (here / "enough").exists():
        time.sleep(0.01)
    return item.text
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "items.txt").write_text("good\nask\nbad\nslow\n")
    text = 'name = "talk"\nagent = "agent.py:agent"\n[items]\nlines = "items.txt"\n[run]\nconcurrency = 2\n'
    (tmp_path / "talk.toml").write_text(text)
    return tmp_path


def states(agentrun: Run) -> dict[str, str]:
    ended = agentrun("items", "talk", "--json")
    return {row["key"]: row["state"] for row in map(json.loads, ended.stdout.splitlines())}


def inbox(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".agentrun/talk/inbox/*")]


def ran(folder: Path) -> list[str]:
    return (folder / "ran.log").read_text().split()


def test_a_runner_at_work_takes_in_answers_redo_edits_and_skips(folder: Path, agentrun: Run, begin: Begin) -> None:
    runner = begin("start", "talk.toml")
    eventually((folder / ".agentrun/talk/state.json").exists, "a checkpoint")
    before = {"good": "done", "ask": "waiting", "bad": "failed", "slow": "running"}
    eventually(lambda: states(agentrun) == before, "all but the slow item come to an end")
    for arguments in (
        ["answer", "talk", "ask", "--json", '{"word": "edited"}'],
        ["edit", "talk", "good", "--output", '"better"'],
        ["skip", "talk", "bad", "--reason", "not needed"],
    ):
        ended = agentrun(*arguments)
        assert ended.returncode == 0 and "within 2 s" in ended.stderr, ended.stderr
    after = {"good": "done", "ask": "done", "bad": "skipped", "slow": "running"}
    eventually(lambda: states(agentrun) == after, "the words are taken in")
    eventually(lambda: inbox(folder) == [], "the inbox is empty")
    assert ran(folder).count("good") == 1
    again = agentrun("redo", "talk", "ask", "--now")
    assert again.returncode == 0 and "within 2 s" in again.stderr
    eventually(lambda: states(agentrun)["ask"] == "waiting", "it asks again")
    assert agentrun("answer", "talk", "ask", "--no").returncode == 0
    (folder / "enough").touch()
    _, told = runner.communicate(timeout=PATIENCE_SECONDS)
    if runner.returncode == 3:  # it ended before the last answer was posted
        assert agentrun("resume", "talk").returncode == 0
    else:
        assert runner.returncode == 0, told
    lines = [json.loads(line) for line in (folder / "talk.results.jsonl").read_text().splitlines()]
    assert {line["key"]: line["output"] for line in lines} == {"good": "better", "ask": [False, "yes"], "slow": "slow"}
    assert ran(folder).count("slow") == 1 and ran(folder).count("bad") == 1


def test_redo_without_now_waits_for_the_next_launch(folder: Path, agentrun: Run, begin: Begin) -> None:
    runner = begin("start", "talk.toml")
    eventually((folder / ".agentrun/talk/state.json").exists, "a checkpoint")
    eventually(lambda: {"good": "done", "bad": "failed"}.items() <= states(agentrun).items(), "two items end")
    assert "this happens at the next launch" in agentrun("redo", "talk", "good").stderr
    (folder / "enough").touch()
    runner.communicate(timeout=PATIENCE_SECONDS)
    assert ran(folder).count("good") == 1 and len(inbox(folder)) == 1
    assert agentrun("skip", "talk", "bad").returncode == 0
    assert agentrun("answer", "talk", "ask", "--yes", "--resume").returncode == 0
    assert ran(folder).count("good") == 2 and inbox(folder) == []


def test_a_finished_run_is_opened_again_for_what_was_said_since(folder: Path, agentrun: Run) -> None:
    (folder / "enough").touch()
    agentrun("start", "talk.toml")
    agentrun("skip", "talk", "bad")
    assert agentrun("answer", "talk", "ask", "--yes", "--resume").returncode == 0
    before = ran(folder)
    said = agentrun("redo", "talk", "slow")
    assert said.stderr.endswith("to continue: agentrun start talk\n")
    agentrun("edit", "talk", "good", "--output", '"better"')
    ended = agentrun("start", "talk")
    assert ended.returncode == 0, ended.stderr
    assert ran(folder) == [*before, "slow"]
    lines = [json.loads(line) for line in (folder / "talk.results.jsonl").read_text().splitlines()]
    assert [line["output"] for line in lines] == ["better", [True, "yes"], "slow"]


def test_a_review_goes_on_with_the_run(folder: Path, agentrun: Run) -> None:
    (folder / "enough").touch()
    (folder / "items.txt").write_text("good\nask\n")
    assert agentrun("start", "talk.toml").returncode == 3
    terminal = Terminal("review", "talk", "--resume", cwd=folder)
    try:
        terminal.until("[q]uit: ")
        terminal.type("a")
        code, rest = terminal.end()
    finally:
        terminal.close()
    assert code == 0, rest
    assert "1 answer is posted" in rest and "2 of 2" in rest
    assert json.loads((folder / "talk.results.jsonl").read_text().splitlines()[1])["output"] == [True, "yes"]

"""The promises, through the real command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from waiting import PATIENCE_SECONDS

AGENTRUN = str(Path(sys.executable).parent / "agentrun")
AGENT = """
import os

def agent(item):
    fd = os.open("calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{item.key}\\n".encode())
    os.close(fd)
    return item.text.upper()
"""


def agentrun(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [AGENTRUN, *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def write_job(folder: Path, agent: str = AGENT, *, items: str = 'files = "docs/*.txt"', run: str = "") -> None:
    (folder / "agent.py").write_text(agent)
    (folder / "job.toml").write_text(f'name = "j"\nagent = "agent.py:agent"\n[items]\n{items}\n[run]\n{run}\n')


def write_documents(folder: Path, texts: dict[str, str]) -> None:
    (folder / "docs").mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / "docs" / name).write_text(text)


def calls(folder: Path) -> list[str]:
    return (folder / "calls.log").read_text().split()


def results(folder: Path) -> bytes:
    return (folder / "j.results.jsonl").read_bytes()


def test_on_resume_only_new_changed_and_unfinished_items_are_run(tmp_path: Path) -> None:
    write_job(tmp_path)
    write_documents(tmp_path, {f"{n:02}.txt": f"text {n}" for n in range(20)})
    agentrun(tmp_path, "start", "job.toml", "--limit", "15", code=4)
    assert len(calls(tmp_path)) == 15
    (tmp_path / "calls.log").unlink()

    docs = tmp_path / "docs"
    (docs / "03.txt").write_text("text 3, and more")  # changed
    (docs / "05.txt").unlink()  # gone
    write_documents(tmp_path, {"04b.txt": "inserted", "00a.txt": "inserted too"})  # new; the rest moves
    plan = agentrun(tmp_path, "resume", "job.toml", "--plan").stdout
    assert "docs/03.txt" in plan
    assert "docs/05.txt" in plan
    assert not (tmp_path / "calls.log").exists()

    agentrun(tmp_path, "resume", "job.toml")
    unfinished = {f"docs/{n:02}.txt" for n in range(15, 20)}
    assert Counter(calls(tmp_path)) == Counter({"docs/03.txt", "docs/04b.txt", "docs/00a.txt"} | unfinished)
    resumed = results(tmp_path)

    agentrun(tmp_path, "start", "job.toml", "--fresh")
    assert results(tmp_path) == resumed


def test_half_the_folder_away_is_refused_and_back_again_nothing_is_paid_twice(tmp_path: Path) -> None:
    write_job(tmp_path)
    write_documents(tmp_path, {f"{n:02}.txt": f"text {n}" for n in range(10)})
    agentrun(tmp_path, "start", "job.toml", "--limit", "8", code=4)
    (tmp_path / "away").mkdir()
    for n in range(4):
        (tmp_path / "docs" / f"{n:02}.txt").rename(tmp_path / "away" / f"{n:02}.txt")
    refused = agentrun(tmp_path, "resume", "job.toml", code=2)
    assert "--allow-gone" in refused.stderr
    for n in range(4):
        (tmp_path / "away" / f"{n:02}.txt").rename(tmp_path / "docs" / f"{n:02}.txt")
    agentrun(tmp_path, "resume", "job.toml")
    assert Counter(calls(tmp_path)) == Counter(f"docs/{n:02}.txt" for n in range(10))


@pytest.mark.parametrize(
    ("misdeed", "cause"),
    [
        ("import time; time.sleep(600)", "timed out"),
        ("import signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    ],
)
def test_an_item_that_hangs_or_crashes_takes_its_worker_and_not_the_run(
    tmp_path: Path, misdeed: str, cause: str
) -> None:
    write_job(
        tmp_path,
        AGENT.replace("    return", f"    if item.text == 'bad':\n        {misdeed}\n    return"),
        items='lines = "items.txt"',
        run='timeout = "2s"',
    )
    (tmp_path / "items.txt").write_text("one\nbad\ntwo\nthree\n")
    agentrun(tmp_path, "start", "job.toml", code=1)
    assert Counter(calls(tmp_path)) == {"one": 1, "bad": 2, "two": 1, "three": 1}
    (failure,) = [json.loads(line) for line in agentrun(tmp_path, "failures", "job.toml", "--json").stdout.splitlines()]
    assert failure["key"] == "bad"
    assert cause in failure["cause"]
    assert failure["attempts"] == 2
    partial = [json.loads(line)["key"] for line in (tmp_path / "j.results.partial.jsonl").read_text().splitlines()]
    assert partial == ["one", "two", "three"]


OPENAI_AGENT = (
    AGENT
    + """
# What the client raises, with the attributes that it has.
class APIStatusError(Exception):
    pass

class AuthenticationError(APIStatusError):
    status_code = 401
    code = "invalid_api_key"

for error in (APIStatusError, AuthenticationError):
    error.__module__ = "openai"

works = agent

async def agent(item):
    if os.environ.get("OPENAI_API_KEY") != "right":
        raise AuthenticationError("Error code: 401 - Incorrect API key provided")
    return works(item)
"""
)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_bad_key_stops_the_run_marks_nothing_failed_and_it_goes_on_when_the_key_is_right(
    tmp_path: Path, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path, OPENAI_AGENT, items='lines = "items.txt"', run=f"concurrency = {concurrency}")
    (tmp_path / "items.txt").write_text("".join(f"item-{n}\n" for n in range(20)))
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    stopped = agentrun(tmp_path, "start", "job.toml", code=4)
    assert "Incorrect API key" in stopped.stderr
    state = json.loads((tmp_path / ".agentrun/j/state.json").read_bytes())
    assert state["counts"] == {"pending": 20, "done": 0, "failed": 0, "skipped": 0, "waiting": 0}
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    agentrun(tmp_path, "resume", "job.toml")
    assert Counter(calls(tmp_path)) == Counter(f"item-{n}" for n in range(20))


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("{'scores': [1.0, float('nan')]}", "output.scores[1]"),
        ("2**70", "output is an integer"),
        ("{'tags': {1, 2}}", "output.tags is a set"),
        ("{'name': chr(0xd800)}", "output.name"),
        ("__import__('functools').reduce(lambda inner, _: [inner], range(5000), 1)", "nested"),
    ],
)
def test_an_output_that_json_cannot_hold_fails_its_item_with_the_place_inside_it(
    tmp_path: Path, expression: str, told: str
) -> None:
    agent = AGENT.replace("return item.text.upper()", f"return {expression} if item.text == 'bad' else 1")
    write_job(tmp_path, agent, items='lines = "items.txt"')
    (tmp_path / "items.txt").write_text("good\nbad\ngood too\n")
    agentrun(tmp_path, "start", "job.toml", code=1)
    shown = agentrun(tmp_path, "failures", "job.toml").stdout
    assert told in shown
    assert "bad" in shown


def test_the_next_start_after_completion_runs_nothing_and_a_fresh_one_everything(tmp_path: Path) -> None:
    write_job(tmp_path, items='lines = "items.txt"')
    (tmp_path / "items.txt").write_text("one\ntwo\n")
    agentrun(tmp_path, "start", "job.toml")
    assert not (tmp_path / ".agentrun/j/state.json").exists()
    said = agentrun(tmp_path, "start", "job.toml", "--plan").stdout
    assert said.startswith("j: nothing to run, 2 results kept from the run of ")
    said = agentrun(tmp_path, "start", "job.toml").stderr
    assert said.startswith("j: nothing to run, 2 results kept from the run of ") and said.endswith("start j --fresh\n")
    assert calls(tmp_path) == ["one", "two"]
    agentrun(tmp_path, "start", "job.toml", "--fresh")
    assert calls(tmp_path) == ["one", "two", "one", "two"]


def test_a_script_as_agent_can_be_resumed_by_name(tmp_path: Path) -> None:
    (tmp_path / "summarise.py").write_text(AGENT.replace("def agent", "def summarise"))
    write_documents(tmp_path, {f"{n}.txt": f"text {n}" for n in range(6)})
    arguments = ["--items", "docs/*.txt", "-j", "2", "-o", "out.jsonl"]
    begun = agentrun(tmp_path, "start", "summarise.py:summarise", *arguments, "--limit", "3", code=4)
    assert "summarise" in begun.stderr
    assert "out.jsonl" in begun.stderr
    agentrun(tmp_path, "resume", "summarise")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 6
    assert len(calls(tmp_path)) == 6


def test_a_job_of_the_same_name_in_another_folder_is_another_job(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        write_job(tmp_path / name, items='lines = "items.txt"')
        (tmp_path / name / "items.txt").write_text("one\ntwo\n")
    agentrun(tmp_path, "start", "here/job.toml", "--state-dir", "state", "--limit", "1", code=4)
    refused = agentrun(tmp_path, "start", "there/job.toml", "--state-dir", "state", code=2)
    assert "belongs to" in refused.stderr
    agentrun(tmp_path, "resume", "here/job.toml", "--state-dir", "state")


def test_with_nohup_it_outlives_the_terminal(tmp_path: Path) -> None:
    agent = AGENT.replace("    return", "    while not os.path.exists('go'):\n        time.sleep(0.01)\n    return")
    write_job(tmp_path, f"import time\n{agent}", items='lines = "items.txt"')
    (tmp_path / "items.txt").write_text("one\ntwo\n")
    command = f"trap '' HUP; exec {AGENTRUN} start job.toml"
    process = subprocess.Popen(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "calls.log").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    assert "stopped" not in said
    assert calls(tmp_path) == ["one", "two"]

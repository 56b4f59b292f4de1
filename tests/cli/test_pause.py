"""A quota that is waited for, by the real command."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest

from waiting import eventually

Run = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]
AGENT = """\
import json
import os
import pathlib
import time
import urllib.error
import urllib.request

import agentrun

def ask(item):
    with open("pids", "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    try:
        with urllib.request.urlopen(os.environ["SERVER"] + "/" + item.text) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        seconds = float(error.headers["x-seconds"])
        raise agentrun.Stop("the quota of the day", resume_at=time.time() + seconds)
"""
JOB = """\
agent = "agent.py:ask"
[items]
lines = "items.txt"
"""


class Provider:
    """Answers so many requests, then says that its quota is renewed in `seconds`; from the next request on it is."""

    def __init__(self, accepts: int, seconds: float) -> None:
        self.accepts, self.seconds = accepts, seconds
        self.answered: list[str] = []
        self.refused = 0
        self.url = ""
        self._lock = Lock()

    def answer(self, text: str) -> bool:
        with self._lock:
            if len(self.answered) == self.accepts and not self.refused:
                self.refused += 1
                return False
            self.answered.append(text)
            return True


@contextmanager
def serving(provider: Provider) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_answered = provider.answer(self.path.strip("/"))
            body = json.dumps(self.path.strip("/").upper()).encode()
            self.send_response(200 if is_answered else 429)
            self.send_header("x-seconds", str(provider.seconds))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "job.toml").write_text('name = "night"\n' + JOB)
    (tmp_path / "items.txt").write_text("".join(f"t{number}\n" for number in range(12)))
    return tmp_path


def status(agentrun: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agentrun("status", "night", "--json").stdout)
    return found


@pytest.mark.parametrize("quiet", [True, False])
def test_it_waits_for_the_quota_and_finishes_with_nothing_failed_or_paid_twice(
    agentrun: Run, place: Path, quiet: bool
) -> None:
    with serving(Provider(accepts=5, seconds=15.0)) as provider:
        ended = agentrun("start", "job.toml", *(["-q"] if quiet else []), SERVER=provider.url)
    assert ended.returncode == 0, ended.stderr
    assert sorted(provider.answered) == sorted(f"t{number}" for number in range(12)) and provider.refused == 1
    lines = ended.stderr.splitlines()
    (line,) = [line for line in lines if "paused until" in line]
    assert line.startswith("night: paused until ") and line.endswith(": the quota of the day")
    assert lines == [line] if quiet else "night: the pause is over, and it continues" in lines
    # The worker was closed for the pause, and another one started after it.
    assert len(set((place / "pids").read_text().split())) == 2
    log = agentrun("log", "night").stdout
    assert "launch 1 paused until " in log and "launch 1 continued\n" in log


def test_a_launch_is_started_stopped_and_restarted_during_a_pause(agentrun: Run, begin: Begin, place: Path) -> None:
    with serving(Provider(accepts=5, seconds=3600.0)) as provider:
        first = begin("start", "job.toml", SERVER=provider.url)
        state = place / ".agentrun/night/state.json"
        eventually(lambda: state.exists() and json.loads(state.read_text())["paused"], "it pauses", alive=first)
        found = status(agentrun)
        assert (found["status"], found["running"], found["counts"]["done"]) == ("running", [], 5)
        assert found["paused"]["reason"] == "the quota of the day" and found["paused"]["until"]
        shown = agentrun("status", "night").stdout
        assert "  paused      until " in shown and ": the quota of the day\n" in shown
        assert "paused" in agentrun("status").stdout
        # Nobody knows how long it takes in all.
        assert found["pace"] is None and "pace" not in shown
        report = agentrun("report", "night", "--md").stdout
        assert "# night: paused\n" in report and "the quota of the day. It continues by itself." in report
        assert re.search(r"^- Pauses: .* in all: the quota of the day$", report, re.MULTILINE)
        assert agentrun("stop", "night").returncode == 0
        assert first.wait() == 143

        assert status(agentrun)["stopped"]["waits_for"] == "the quota of the day"
        assert "resume after " in agentrun("status", "night").stdout
        again = agentrun("resume", "night", SERVER=provider.url)
        assert again.returncode == 75
        assert "night: not before " in again.stderr and "the quota of the day; --now tries at once" in again.stderr
        assert (len(provider.answered), provider.refused) == (5, 1)

        ended = agentrun("resume", "night", "--now", SERVER=provider.url)
        assert ended.returncode == 0, ended.stderr
    assert sorted(provider.answered) == sorted(f"t{number}" for number in range(12)) and provider.refused == 1


@pytest.mark.parametrize("flags", [("--no-wait",), ("--max-wait", "1h")])
def test_where_it_may_not_wait_so_long_it_is_exit_75_at_once(
    agentrun: Run, place: Path, flags: tuple[str, ...]
) -> None:
    with serving(Provider(accepts=5, seconds=3601.0)) as provider:
        ended = agentrun("start", "job.toml", "--json", *flags, SERVER=provider.url)
    assert ended.returncode == 75, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["counts"]["done"], summary["counts"]["failed"]) == (5, 0) and summary["resume_at"]
    assert "paused" not in ended.stderr and "this is temporary; resume after " in ended.stderr


def test_the_flags_of_speed_are_values_of_the_job(agentrun: Run, place: Path) -> None:
    with serving(Provider(accepts=100, seconds=1.0)) as provider:
        flags = ("--no-adapt", "--tokens", "100k/min", "--max-wait", "4h", "--rate", "600/min")
        assert agentrun("start", "job.toml", "--limit", "1", *flags, SERVER=provider.url).returncode == 4
    state = json.loads((place / ".agentrun/night/state.json").read_text())
    kept = state["context"]["kept"]["run"]
    assert kept == {"adapt": False, "tokens": "100k/min", "max_wait": "4h", "rate": "600/min"}
    for flag, value in (("--tokens", "many"), ("--max-wait", "2 parsecs")):
        refused = agentrun("resume", "night", flag, value)
        assert refused.returncode == 2 and f'is "{value}"; write a' in refused.stderr

"""Notices of the real command: to a server on loopback, to a program, and what may never be written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.conftest import Run
from needs import require_module
from waiting import eventually

require_module("apprise", extra="notify")
pytestmark = pytest.mark.usefixtures("nothing_left")
PASSWORD, PATH_TOKEN = "Pa55wordOfTheHook", "T0kenInThePath"


class Hook(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[dict[str, str]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"json://me:{PASSWORD}@127.0.0.1:{self.server_port}/{PATH_TOKEN}"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def wants_notices(job: Path, lines: str) -> None:
    with open(job / "job.toml", "a") as file:
        file.write(f"[notify]\n{lines}\n")


def written(folder: Path) -> str:
    """Everything on disk but the job file."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "job.toml"]
    return "\n".join(path.read_bytes().decode(errors="replace") for path in files)


def test_the_end_is_told_and_no_address_is_on_disk(agentrun: Run, job: Path, hook: Hook, tmp_path: Path) -> None:
    wants_notices(job, f'after = 0\nurls = ["{hook.url}", "env:HOOK"]\ncommand = ["sh", "-c", "cat >told.json"]')
    ended = agentrun("start", "-q", cwd=job, HOOK=hook.url, TMPDIR=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [(one["title"], one["type"]) for one in hook.got] == [("work: finished", "success")] * 2
    assert hook.got[0]["message"].startswith("3 of 3 done · took ")
    told = json.loads((job / "told.json").read_text())
    assert told["occasion"] == "finished" and told["counts"]["done"] == 3 and told["exit_code"] == 0
    assert PASSWORD not in written(tmp_path) and PATH_TOKEN not in written(tmp_path)


def test_a_notice_is_sent_when_everything_is_on_disk(agentrun: Run, job: Path) -> None:
    look = "cat >told.json; cp .agentrun/work/state.json then.json 2>/dev/null || ls >then.txt"
    wants_notices(job, f'after = 0\ncommand = ["sh", "-c", "{look}"]')
    assert agentrun("start", "--limit", "1", cwd=job).returncode == 4
    then = json.loads((job / "then.json").read_text())
    assert then["counts"]["done"] == 1 and not then["running"]
    assert then["stopped"] is not None and then["stopped"]["exit_code"] == 4
    assert agentrun("resume", "work", cwd=job).returncode == 0
    assert "work.results.jsonl" in (job / "then.txt").read_text()


def test_failed_items_are_told_and_a_short_launch_is_not(agentrun: Run, job: Path, hook: Hook) -> None:
    (job / "items" / "b.txt").write_text("bad")
    wants_notices(job, f'urls = ["{hook.url}"]\nafter = 0')
    assert agentrun("start", cwd=job).returncode == 1
    assert [(one["title"], one["type"]) for one in hook.got] == [("work: items failed", "warning")]
    (job / "job.toml").write_text((job / "job.toml").read_text().replace("after = 0", ""))
    assert agentrun("resume", "work", cwd=job).returncode == 1
    assert len(hook.got) == 1


def test_a_notice_that_fails_is_said_without_its_address_and_changes_no_code(
    agentrun: Run, job: Path, hook: Hook, tmp_path: Path
) -> None:
    hook.status = 500
    wants_notices(job, f'after = 0\nurls = ["{hook.url}"]\ncommand = ["false"]')
    ended = agentrun("start", "--detach", cwd=job)
    assert ended.returncode == 0
    log = job / ".agentrun" / "work" / "launch.log"
    eventually(lambda: "notify.command" in log.read_text(), "the launch has told everybody")
    assert "work: notice to address 1 (JSON) not sent: " in log.read_text()
    assert "work: notice to notify.command false exited with 1" in log.read_text()
    assert PASSWORD not in written(tmp_path) and PATH_TOKEN not in written(tmp_path)
    ended = agentrun("start", "--fresh", "-q", cwd=job)
    assert ended.returncode == 0 and "not sent" in ended.stderr
    assert PASSWORD not in ended.stderr and PATH_TOKEN not in ended.stderr


def test_an_address_that_cannot_work_is_refused_before_anything_runs(agentrun: Run, job: Path) -> None:
    wants_notices(job, f'urls = ["nope://{PASSWORD}"]')
    ended = agentrun("start", cwd=job)
    assert ended.returncode == 2 and "does not understand address 1" in ended.stderr and PASSWORD not in ended.stderr
    assert not (job / "ran.log").exists() and not (job / ".agentrun").exists()
    (job / "job.toml").write_text((job / "job.toml").read_text().replace(f"nope://{PASSWORD}", "env:HOOK"))
    ended = agentrun("start", cwd=job)
    assert ended.returncode == 2 and "notify.urls needs HOOK" in ended.stderr


def test_a_test_notice_reaches_everybody(agentrun: Run, job: Path, hook: Hook) -> None:
    assert agentrun("notify", "job.toml", cwd=job).returncode == 2
    wants_notices(job, f'urls = ["{hook.url}"]\ncommand = ["sh", "-c", "cat >told.json"]')
    shown = agentrun("notify", "job.toml", cwd=job)
    assert shown.returncode == 0 and "address 1 (JSON)" in shown.stdout and PASSWORD not in shown.stdout
    assert hook.got == []
    ended = agentrun("notify", "job.toml", "--test", cwd=job)
    assert (ended.returncode, ended.stdout) == (0, "address 1 (JSON): sent\nnotify.command: sent\n")
    assert hook.got[0]["title"] == "work: a test notice"
    assert json.loads((job / "told.json").read_text())["occasion"] == "test"
    hook.status = 403
    ended = agentrun("notify", "job.toml", "--test", cwd=job)
    assert ended.returncode == 1 and "address 1 (JSON): not sent: " in ended.stdout


def test_a_launch_that_is_stopped_is_told(agentrun: Run, job: Path) -> None:
    wants_notices(job, 'after = 0\non = ["stopped"]\ncommand = ["sh", "-c", "cat >told.json"]')
    assert agentrun("start", "--limit", "1", cwd=job).returncode == 4
    told = json.loads((job / "told.json").read_text())
    assert (told["occasion"], told["exit_code"], told["stopped_by"]) == ("stopped", 4, "limit")
    (job / "told.json").unlink()
    assert agentrun("resume", "work", cwd=job).returncode == 0
    assert not (job / "told.json").exists()

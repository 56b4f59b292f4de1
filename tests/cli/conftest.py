"""The real command, as a subprocess."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from waiting import PATIENCE_SECONDS, eventually

COMMAND = str(Path(sys.executable).parent / "agentrun")
AGENT = """\
import os, pathlib, time
from agentrun import Fail

def upper(item):
    here = pathlib.Path(__file__).parent
    with open(here / "ran.log", "a") as log:
        log.write(item.key + "\\n")
    until = os.environ.get("UNTIL")
    while until and not (here / until).exists():
        time.sleep(0.01)
    if "bad" in item.text and not (here / "mended").exists():
        raise Fail("it is bad: " + item.text)
    return item.text.upper()
"""


Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUN_")}
    return {**kept, "TERM": "dumb", "PYTHONUTF8": "1", **more}


@pytest.fixture
def agentrun(tmp_path: Path) -> Run:
    """Run `agentrun …` in tmp_path, and wait for its end."""

    def run(
        *arguments: str, cwd: Path | None = None, stdin: str | None = None, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=cwd or tmp_path,
            env=environment(**environ),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `agentrun …` in the background; what is left of it at the end is ended."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=cwd or tmp_path,
            env=environment(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """For tests that detach: whatever still works in the test's folder at its end is ended, also if the test failed."""
    yield
    eventually(lambda: not _kill_all(_at_work_in(tmp_path)), "nothing is left")


def _kill_all(pids: list[int]) -> list[int]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _at_work_in(folder: Path) -> list[int]:
    """The processes whose current folder is in there; where /proc does not tell, those that hold a job's lock."""
    if not os.path.isdir("/proc/self"):
        locks = [json.loads(path.read_text() or "{}") for path in folder.rglob(".agentrun/*/lock")]
        return [held["pid"] for held in locks if "pid" in held and _is_alive(held["pid"])]
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            is_there = Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
            if is_there and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder `work` with a job of three items, the second of which can be made bad."""
    folder = tmp_path / "work"
    (folder / "items").mkdir(parents=True)
    (folder / "agent.py").write_text(AGENT)
    (folder / "job.toml").write_text('agent = "agent.py:upper"\n[items]\nfiles = "items/*.txt"\n')
    for name in ("a", "b", "c"):
        (folder / "items" / f"{name}.txt").write_text(f"text {name}")
    return folder

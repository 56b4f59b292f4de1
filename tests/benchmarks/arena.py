"""The arena: a folder on the disk that is measured, where contenders are started one after another.

Every contender is a process of its own, in an empty place of its own, with the same items, and the disk at rest when it
begins. What it did is read from the marks that the work left (`work.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.work import TENTHS, write_items

TESTS = Path(__file__).resolve().parent.parent
AGENTRUN = str(Path(sys.executable).parent / "agentrun")
JOB = "bench"
MOST_SECONDS = 1800.0


class Spoiled(Exception):
    """A contender did not do its work."""


@dataclass(frozen=True)
class Took:
    """What a contender took."""

    seconds: float
    """From its start to its exit."""
    began: float
    total: int
    marks: dict[str, Any]
    report: dict[str, Any] = field(default_factory=dict)
    """Of the probe, where it was run by that."""
    printed: str = ""

    def per_item(self, width: int = 1) -> float:
        """Seconds: from the first call to the last, `width` at a time, at least total - width items were finished."""
        return float(self.marks["last"] - self.marks["first"]) / (self.total - width)

    @property
    def to_first(self) -> float:
        """Seconds from its start to the first call of the work."""
        return float(self.marks["first"]) - self.began

    @property
    def tenths(self) -> list[float]:
        """Seconds an item, in each tenth."""
        times = [*self.marks["tenths"], self.marks["last"]]
        return [(later - earlier) / (self.total / TENTHS) for earlier, later in pairwise(times)]


class Arena:
    """`tell` gets the progress of what takes long: a share from 0 to 1."""

    def __init__(self, folder: Path, *, tell: Callable[[float], None] = lambda share: None) -> None:
        self.folder = folder
        self._tell = tell
        self._places = 0
        folder.mkdir(parents=True, exist_ok=True)

    def items(self, total: int, fail_percent: float = 0.0) -> Path:
        path = self.folder / f"items-{total}-{fail_percent:g}.jsonl"
        if not path.exists():
            write_items(path, total, fail_percent)
        return path

    def keys(self, total: int) -> Path:
        """A word a line, for xargs and parallel."""
        path = self.folder / f"keys-{total}.txt"
        if not path.exists():
            path.write_text("".join(f"item-{n:07}\n" for n in range(total)))
        return path

    def place(self) -> Path:
        """A new, empty folder."""
        self._places += 1
        place = self.folder / f"place-{self._places}"
        place.mkdir()
        return place

    def copy(self, place: Path) -> Path:
        copy = self.place()
        shutil.copytree(place, copy, dirs_exist_ok=True)
        return copy

    def leave(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)

    def job(self, total: int, *, width: int = 1, fail_percent: float = 0.0, what: str | None = None) -> Path:
        """A place with a job file in it; `what` runs the items, else the async agent does."""
        place = self.place()
        agents = os.path.relpath(TESTS / "benchmarks" / "agents.py", place)
        text = f"""
            name = "{JOB}"
            {what or f'agent = "{agents}:answer"'}
            output = "results.jsonl"
            [items]
            jsonl = "../{self.items(total, fail_percent).name}"
            key = "id"
            [run]
            concurrency = {width}
            allow_failures = "100%"
            stop_after_failures = 0
            crash_limit = 0
        """
        (place / "job.toml").write_text("\n".join(line.strip() for line in text.splitlines()))
        return place

    # ---- starting contenders

    def run(
        self,
        argv: Sequence[str],
        place: Path,
        *,
        total: int,
        fail_percent: float = 0.0,
        die_at: int | None = None,
        on_terminal: bool = False,
        environ: dict[str, str] | None = None,
        stdin: Path = Path(os.devnull),
    ) -> Took:
        """Run it to its end, or to the call at which it is to die."""
        marks, report = place / "marks.json", place / "report.json"
        marks.unlink(missing_ok=True)
        report.unlink(missing_ok=True)
        # Whoever may not keep compiled modules compiles at every start, unless somebody else left them there before.
        unwanted = ("BENCH_", "AGENTRUN", "PYTHONDONTWRITEBYTECODE")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        environment |= {
            "PYTHONPATH": str(TESTS),
            "BENCH_SOURCE": str(self.items(total, fail_percent)),
            "BENCH_TOTAL": str(total),
            "BENCH_MARKS": str(marks),
            "XDG_STATE_HOME": str(self.folder),
            **({} if die_at is None else {"BENCH_DIE_AT": str(die_at)}),
            **(environ or {}),
        }
        self._rest(place)
        with _Output(place / "printed.txt", on_terminal=on_terminal) as output, stdin.open("rb") as given:
            began = time.monotonic()
            process = subprocess.Popen(
                argv,
                cwd=place,
                env=environment,
                stdin=given,
                stdout=output.fd,
                stderr=output.fd,
                start_new_session=True,
            )
            try:
                code = self._wait(process, marks, total)
                seconds = time.monotonic() - began
            finally:
                _end_session(process)
        if code != (0 if die_at is None else -signal.SIGKILL):
            raise Spoiled(f"{Path(argv[0]).name} {' '.join(argv[1:4])}: exit {code}: {output.last_line()}")
        return Took(seconds, began, total, _read(marks), _read(report), output.text())

    def agentrun(
        self,
        place: Path,
        *arguments: str,
        total: int,
        fail_percent: float = 0.0,
        die_at: int | None = None,
        probed: bool = False,
        on_terminal: bool = False,
        command: str = AGENTRUN,
        environ: dict[str, str] | None = None,
    ) -> Took:
        """The command. Probed, it is run by contenders/probe.py, which accounts for it."""
        argv = [sys.executable, "-m", "benchmarks.contenders.probe", "report.json"] if probed else [command]
        words = arguments or ("start", "job.toml", "-q")
        return self.run(
            [*argv, *words],
            place,
            total=total,
            fail_percent=fail_percent,
            die_at=die_at,
            on_terminal=on_terminal,
            environ={**({"TERM": "xterm-256color", "COLUMNS": "100"} if on_terminal else {}), **(environ or {})},
        )

    def module(
        self, name: str, *arguments: str, total: int, python: str = sys.executable, place: Path | None = None
    ) -> Took:
        """A contender, in a place of its own or in this one, which it leaves."""
        place = place or self.place()
        try:
            return self.run([python, "-m", f"benchmarks.contenders.{name}", *arguments], place, total=total)
        finally:
            self.leave(place)

    def _rest(self, place: Path) -> None:
        """Nothing is left to write, and what a killed runner left behind has given the lock back."""
        lock = place / ".agentrun" / JOB / "lock"
        if lock.exists():
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
        os.sync()

    def _wait(self, process: subprocess.Popen[bytes], marks: Path, total: int) -> int:
        """Not with a timeout, which asks again and again: what is measured is the moment of its end."""
        ended = threading.Event()
        patience = threading.Timer(MOST_SECONDS, process.kill)
        patience.daemon = True
        patience.start()
        if total >= 50_000:
            threading.Thread(target=self._watch, args=(marks, total, ended), daemon=True).start()
        try:
            return process.wait()
        finally:
            patience.cancel()
            ended.set()

    def _watch(self, marks: Path, total: int, ended: threading.Event) -> None:
        told = 0.0
        while not ended.wait(1.0):
            if (share := _read(marks).get("calls", 0) / total) > told:
                self._tell(told := share)


class _Output:
    """Where a contender prints to: a file, or a terminal that somebody reads."""

    def __init__(self, path: Path, *, on_terminal: bool) -> None:
        self._path = path
        self._reader: threading.Thread | None = None
        if on_terminal:
            self._ours, self.fd = pty.openpty()
            self._reader = threading.Thread(target=self._drain, daemon=True)
        else:
            self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def __enter__(self) -> _Output:
        if self._reader is not None:
            self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self._reader is not None:
            self._reader.join(5.0)
            os.close(self._ours)

    def _drain(self) -> None:
        with self._path.open("wb") as file:
            try:
                while piece := os.read(self._ours, 65536):
                    file.write(piece)
            except OSError:
                pass  # the other side is closed

    def text(self) -> str:
        return self._path.read_text(errors="replace")

    def last_line(self) -> str:
        lines = [line.strip() for line in self.text().splitlines() if line.strip()]
        return lines[-1][:200] if lines else "it printed nothing"


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """A server that a killed contender has left behind. agentrun's guardian has a session of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()

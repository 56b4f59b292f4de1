"""The work that everybody does: an item is a line of a jsonl, its output some 200 bytes, made at once.

Only the standard library: this is imported in agentrun's environment, in the peers', and by programs.

**How time per item is measured.** Not by a clock around a library's call, which would hold its start and its end as
well, but by the work itself: it notes when it was called, first and last and at every tenth. From the first call to the
last there are N - 1 whole cycles at one item at a time, and at least N - J at J at a time, whoever does the calling.
The notes go to a file that the harness reads (`arena.py`), and the clock is the system's, so that the harness can
subtract its own time of starting the program.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TENTHS = 10
CPU_SECONDS = 0.010
_ANSWER = "Of this it says that nothing is known for certain; see the appendix, and the letter of May 3. " * 2


def write_items(path: Path, total: int, fail_percent: float = 0.0) -> None:
    """Some 80 bytes an item; which of them fail is the same in every run."""
    chosen = random.Random(7)
    with path.open("w") as file:
        for n in range(total):
            fails = chosen.random() * 100 < fail_percent
            file.write(json.dumps({"id": f"item-{n:07}", "question": f"what of {n}?", "fails": fails}) + "\n")


def read_items(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            yield json.loads(line)


def source() -> Path:
    """Where the harness put the items."""
    return Path(os.environ["BENCH_SOURCE"])


class Marks:
    """Notes when the work was called. With BENCH_DIE_AT=n the n-th call, counted from 0, is the process's last."""

    def __init__(self) -> None:
        # A library may load the work without a harness around it (`agentrun try`): then nothing is noted.
        self._path = os.environ.get("BENCH_MARKS", os.devnull)
        self._total = total = int(os.environ.get("BENCH_TOTAL", "1"))
        self._die_at = int(os.environ.get("BENCH_DIE_AT", "-1"))
        self._tenths = {total * tenth // TENTHS for tenth in range(TENTHS)}
        self._looks = self._tenths | {total - 1, self._die_at}
        self._notes: dict[str, Any] = {"tenths": []}
        self._calls = 0

    def call(self) -> None:
        n = self._calls
        self._calls = n + 1
        if n in self._looks:
            self._look(n)

    def _look(self, n: int) -> None:
        now, notes = time.monotonic(), self._notes
        if n == 0:
            notes["first"] = now
        if n in self._tenths:
            notes["tenths"].append(now)
        if n == self._total - 1:
            notes["last"] = now
        notes |= {"calls": n + 1, "peak_bytes": peak_memory_bytes()}
        # Not beside it and renamed: that would be one more change of a folder that may be measured. Kept short.
        with open(self._path, "w") as file:
            json.dump(notes, file)
        if n == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


MARKS = Marks()


def produce(data: dict[str, Any]) -> dict[str, str]:
    """The work on one item."""
    MARKS.call()
    return {"id": data["id"], "answer": _ANSWER}


def burn(data: dict[str, Any]) -> dict[str, str]:
    """Work that takes 10 ms of this thread's CPU."""
    end = time.thread_time() + CPU_SECONDS
    while time.thread_time() < end:
        pass
    return {"id": data["id"], "answer": _ANSWER}


def peak_memory_bytes() -> int:
    """VmHWM of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0

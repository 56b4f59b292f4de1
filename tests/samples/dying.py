"""Runs `agentrun` in forked children, and ends one at its n-th system call after the last item's checkpoint.

    cd samples/cron && python dying.py FIRST STEP

The calls are those of Python's `posix` module that open, write, sync, name or close something, in any thread. For
n = FIRST, FIRST + STEP … until a start lives: a start that dies right before the call, and a start after it, which must
run none of the finished items again. Prints how many starts died.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections import Counter
from importlib import import_module
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from agentrun_cli import entry

# Before the forks: each child would import them again.
for module in ("agents.agent", "launch.execute"):
    import_module(f"agentrun.{module}")
for module in ("commands.start", "drawing.live", "launching"):
    import_module(f"agentrun_cli.{module}")

DIED, LATER = 137, 75
CALLS = {
    "open",
    "write",
    "pwrite",
    "fsync",
    "replace",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "ftruncate",
    "close",
    "kill",
}


class Death:
    """Ends the process at a system call, counted from the commit with which every item is settled."""

    def __init__(self, folder: Path, at: int) -> None:
        self._state = folder / ".agentrun" / "nightly" / "state.json"
        self._left = at
        self._is_armed = False

    def watch(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if event not in ("c_call", "c_return") or getattr(function, "__module__", None) != "posix":
            return
        if function.__name__ not in CALLS:
            return
        if self._is_armed:
            self._left -= event == "c_call"
            if self._left <= 0:
                os._exit(DIED)
        elif event == "c_return" and function.__name__ == "replace":
            sys.setprofile(None)
            self._is_armed = self._is_settled()
            sys.setprofile(self._profile)

    def _is_settled(self) -> bool:
        try:
            counts = json.loads(self._state.read_bytes())["counts"]
        except (OSError, ValueError):
            return False
        return bool(counts["done"]) and not counts["pending"]


def start(folder: Path, death: Death | None) -> int:
    pid = os.fork()
    if pid == 0:
        sys.argv = ["agentrun", "start", "job.toml", "-q", "--allow-gone"]
        if death is not None:
            death.watch()
        try:
            entry.main()
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, first: int, step: int) -> int:
    died = 0
    for at in count(first, step):
        shutil.rmtree(folder / ".agentrun", ignore_errors=True)
        for path in (*folder.glob("nightly-*"), folder / "calls.log"):
            path.unlink(missing_ok=True)
        code = start(folder, Death(folder, at))
        assert code in (0, DIED), f"the start that was to die at call {at} ended with {code}"
        died += code == DIED
        # On a busy machine, what the dead one has started may not be gone yet.
        while (code_after := start(folder, None)) == LATER:
            pass
        assert code_after == 0, f"the start after a death at call {at} failed with {code_after}"
        calls = Counter((folder / "calls.log").read_text().split())
        # A failed item is tried again by the next start.
        twice = [key for key, times in calls.items() if times > 1 and key != "mangled.log"]
        assert not twice, f"after a death at call {at} these ran twice: {twice}"
        assert len(list(folder.glob("nightly-*.results.jsonl"))) == 1
        if code == 0:
            return died
    raise AssertionError


if __name__ == "__main__":
    print(main(Path.cwd(), int(sys.argv[1]), int(sys.argv[2])))

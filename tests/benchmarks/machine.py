"""The machine, as the system itself describes it."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path


def describe(folder: Path) -> list[str]:
    """A line each; `folder` is where is written."""
    return [
        f"{_cores()} cores ({_processor()}), {_memory()}, load {_load()} when it began",
        f"{platform.system()} {platform.release()}, {platform.machine()}",
        f"file system: {_file_system(folder)}",
        f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
    ]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "of an unknown kind"


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _file_system(folder: Path) -> str:
    """Its type and options: the longest mount point that the folder is under."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    path = str(folder.resolve())
    above = [m for m in mounts if path == m[1] or path.startswith(m[1].rstrip("/") + "/")]
    if not above:
        return "unknown"
    # Of two on the same point the later one hides the other.
    best = max(enumerate(above), key=lambda found: (len(found[1][1]), found[0]))[1]
    return f"{best[2]} ({best[3]})"

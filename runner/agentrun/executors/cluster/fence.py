"""What runs on every worker of an engine before a launch begins: ending what an earlier launch left, and a look around.

It is called by the engine, in the engine's own process there, and returns plain values.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentrun.executors.cluster.frames import VERSION
from agentrun.executors.cluster.relay import SCRATCH_PREFIX
from agentrun.system.guardian import end_launch
from agentrun.system.process import boot_id, pid_namespace


def fence(mark: str) -> dict[str, Any]:
    """End everything at this place that carries the mark of the run, and return when it is gone."""
    end_launch(mark)
    folder = Path(tempfile.gettempdir())
    for scratch in folder.glob(f"{SCRATCH_PREFIX}{mark}-*"):
        shutil.rmtree(scratch, ignore_errors=True)
    return facts()


def sweep(mark: str, scratch: str) -> None:
    """End one host and everything that it started, and return when it is gone. Its guardian ends with it, so its
    scratch folder is removed here: only one that is named after it, whatever was said."""
    end_launch(mark)
    with suppress(OSError):
        found = os.lstat(scratch)
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if is_ours and os.path.basename(scratch).startswith(f"{SCRATCH_PREFIX}{mark}-"):
            shutil.rmtree(scratch, ignore_errors=True)


def facts() -> dict[str, Any]:
    """What this place is, and what is installed."""
    return {
        "place": place(),
        "node": socket.gethostname(),
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "agentrun": installed_version(),
        "frames": VERSION,
    }


def sight() -> str:
    """Whoever has the same sees the same processes, and may look into them."""
    return f"{place()}/{os.geteuid()}"


def place() -> str:
    """Identifies where processes see each other: this machine since it was started, or this container on it."""
    return f"{boot_id()}/{pid_namespace()}"


def installed_version() -> str:
    from importlib.metadata import version

    return version("agentrun-batch")


def mismatch(found: dict[str, Any]) -> str:
    """Why a worker with these facts cannot run attempts of this runner; empty if it can."""
    ours = facts()
    if found["frames"] != ours["frames"] or found["agentrun"] != ours["agentrun"]:
        return f"it has agentrun {found['agentrun']}, and here it is {ours['agentrun']}; install the same there"
    theirs, here = (str(one["python"]).split(".")[:2] for one in (found, ours))
    if theirs != here:
        return f"it has Python {'.'.join(theirs)}, and here it is {'.'.join(here)}; use the same minor version there"
    return ""

"""Which process is this, and is that one still alive."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentrun.clock import now_text


def describe_self() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "since": now_text(), "started": start_of(pid)}


def start_of(pid: int) -> str:
    """When a process began, as the system tells it: with the pid, an identity."""
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return ""
        return stat.rpartition(")")[2].split()[19]
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def is_alive(pid: int, host: str, started: str) -> bool:
    """On another host nobody can tell: it is taken as alive."""
    if host != socket.gethostname():
        return True
    if _is_zombie(pid):
        return False
    found = start_of(pid)
    return bool(found) and (not started or found == started)


def _is_zombie(pid: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def boot_id() -> str:
    """Changes when the machine is started anew."""
    if sys.platform == "linux":
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""
    found = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
    return found.stdout.strip()

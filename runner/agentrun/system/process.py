"""Which process is this, and is that one still alive."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from agentrun.system.guardian import read_process
from agentrun.values.clock import now_text


class ThisProcess(NamedTuple):
    """Enough to recognise this process later, also from another host."""

    pid: int
    host: str
    since: str
    """The time of the description."""
    started: str


def describe_self() -> ThisProcess:
    pid = os.getpid()
    return ThisProcess(pid, socket.gethostname(), now_text(), start_of(pid))


def start_of(pid: int) -> str:
    """When a process began, in the system's own words: with the pid, an identity. Empty if it is gone."""
    if sys.platform == "linux":
        found = read_process(pid)
        return str(found.born) if found is not None else ""
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()


def is_alive(pid: int, host: str, started: str) -> bool:
    """Whether the process still runs; one on another host counts as alive, because nobody here can know."""
    if host != socket.gethostname():
        return True
    found = start_of(pid)
    return bool(found) and (not started or found == started)


def boot_id() -> str:
    """Changes whenever the machine boots."""
    if sys.platform == "linux":
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""
    found = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
    return found.stdout.strip()

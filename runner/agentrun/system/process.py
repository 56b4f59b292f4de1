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
    boot: str
    """The machine's boot: another one is another machine, or this one before it was started again."""
    pid_namespace: str
    """Where the pid means this process; containers have their own. Empty where there are none."""


def describe_self() -> ThisProcess:
    pid = os.getpid()
    return ThisProcess(pid, socket.gethostname(), now_text(), start_of(pid), boot_id(), pid_namespace())


def start_of(pid: int) -> str:
    """When a process began, in the system's own words: with the pid, an identity. Empty if it is gone."""
    if sys.platform == "linux":
        found = read_process(pid)
        return str(found.born) if found is not None else ""
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()


def is_alive(pid: int, started: str) -> bool:
    """Whether a process with this pid here is still the one that started then."""
    found = start_of(pid)
    return bool(found) and (not started or found == started)


def has_open(pid: int, file: os.stat_result) -> bool:
    """Whether the process has this file open; only Linux can tell, and elsewhere it counts as open.

    ProcessLookupError if there is no such process, PermissionError if it is another user's.
    """
    if sys.platform != "linux":
        return True
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        raise ProcessLookupError from None
    for name in names:
        try:
            found = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue  # closed meanwhile
        if (found.st_dev, found.st_ino) == (file.st_dev, file.st_ino):
            return True
    return False


def pid_namespace() -> str:
    """Where this process's pid means it, in the system's own words; empty on a system without such namespaces."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def boot_id() -> str:
    """Changes whenever the machine boots."""
    if sys.platform == "linux":
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""
    found = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
    return found.stdout.strip()

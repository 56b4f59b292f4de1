"""One runner: the lock, and who holds it.

The guardian gets the descriptor too, so that the lock outlives a killed runner until its programs are gone.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import orjson

from agentrun.errors import BusyError
from agentrun.store.port import Holder
from agentrun.system.disk import Disk
from agentrun.system.process import describe_self, is_alive
from agentrun.values.clock import local_clock


class Lock:
    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self.fd: int | None = None
        self.mark = ""
        self.left_mark = ""

    def acquire(self, *, wait_seconds: float) -> None:
        from filelock import lock_descriptor

        deadline = time.monotonic() + wait_seconds
        while True:
            # Opened anew at each try: a lock file that somebody unlinked would give two holders.
            fd = self._disk.open(str(self._path), os.O_RDWR | os.O_CREAT)
            if lock_descriptor(fd, blocking=False) and self._is_at_path(fd):
                break
            os.close(fd)
            if time.monotonic() >= deadline:
                raise BusyError(self._busy(), holder=read_holder(self._path))
            time.sleep(0.05)
        self.fd = fd
        left = read_holder(self._path)
        self.left_mark = left.mark if left is not None else ""
        self.mark = secrets.token_hex(8)
        text = orjson.dumps({**describe_self(), "mark": self.mark}) + b"\n"
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)

    def _is_at_path(self, fd: int) -> bool:
        ours = os.fstat(fd)
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino)

    def _busy(self) -> str:
        job = self._path.parent.name
        holder = read_holder(self._path)
        if holder is None:
            who = "it has just begun"
        elif not is_alive(holder.pid, holder.host, holder.started):
            who = f"pid {holder.pid} has ended, and what it started is still being ended"
        else:
            who = f"pid {holder.pid} on {holder.host}, since {local_clock(holder.since)}"
        return f"{job}: another runner has this job ({who}); wait for it, or stop it with: agentrun stop {job}"

    def release(self) -> None:
        # Closed, not unlocked: the guardian may still hold it on purpose. Never unlinked: that gives two holders.
        if self.fd is not None:
            try:
                os.ftruncate(self.fd, 0)
            except OSError:
                pass  # a dead disk was reported before; this is only for people to read
            os.close(self.fd)
            self.fd = None


def read_holder(path: Path) -> Holder | None:
    """Who last took the lock and has not given it back, without touching it."""
    try:
        value = orjson.loads(path.read_bytes())
        return Holder(**value)
    except (OSError, ValueError, TypeError):
        return None

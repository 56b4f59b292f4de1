"""One runner: the lock, and who holds it.

The guardian gets the descriptor too, so that the lock outlives a killed runner until its programs are gone.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from agentrun.errors import BusyError
from agentrun.store.port import Holder, Lease
from agentrun.system.disk import Disk
from agentrun.system.process import describe_self, is_alive
from agentrun.values.clock import local_clock

NAME = "lock"


class FolderLease(Lease):
    """An flock on the file `lock`."""

    def __init__(self, path: Path, fd: int, *, mark: str, left_mark: str, on_release: Callable[[], None]) -> None:
        self.mark = mark
        self.left_mark = left_mark
        self._path = path
        self._fd: int | None = fd
        self._on_release = on_release

    @property
    def fd(self) -> int | None:
        return self._fd

    def release(self) -> None:
        # Closed, not unlocked: the guardian may still hold it on purpose. Never unlinked: that gives two holders.
        if self._fd is not None:
            self._on_release()
            try:
                os.ftruncate(self._fd, 0)
            except OSError:
                pass  # a dead disk was reported before; this is only for people to read
            os.close(self._fd)
            self._fd = None


class Lock:
    """The lock file of one job's folder."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._path = folder / NAME
        self._disk = disk

    def acquire(self, *, wait_seconds: float, on_release: Callable[[], None] = lambda: None) -> FolderLease:
        from filelock import lock_descriptor

        deadline = time.monotonic() + wait_seconds
        while True:
            # Opened anew at each try: a lock file that somebody unlinked would give two holders.
            fd = self._disk.open(str(self._path), os.O_RDWR | os.O_CREAT)
            if lock_descriptor(fd, blocking=False) and self._is_at_path(fd):
                break
            os.close(fd)
            if time.monotonic() >= deadline:
                raise BusyError(self._busy())
            time.sleep(0.05)
        left = read_holder(self._path)
        mark = secrets.token_hex(8)
        os.ftruncate(fd, 0)
        os.pwrite(fd, orjson.dumps(Holder(*describe_self(), mark=mark)) + b"\n", 0)
        left_mark = left.mark if left is not None else ""
        return FolderLease(self._path, fd, mark=mark, left_mark=left_mark, on_release=on_release)

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
            who = "it has just started"
        elif not is_alive(holder.pid, holder.host, holder.started):
            who = f"pid {holder.pid} has exited, and what it started is still being stopped"
        else:
            who = f"pid {holder.pid} on {holder.host}, since {local_clock(holder.since)}"
        return f"{job}: another runner has this job ({who}); wait for it, or stop it with: agentrun stop {job}"


def read_holder(path: Path) -> Holder | None:
    """Who took the lock last and has not given it back, without touching it."""
    try:
        value = orjson.loads(path.read_bytes())
        return Holder(**value)
    except (OSError, ValueError, TypeError):
        return None


def live_holder(folder: Path) -> Holder | None:
    """Who is at work on the job right now."""
    holder = read_holder(folder / NAME)
    if holder is None or not is_alive(holder.pid, holder.host, holder.started):
        return None
    return holder

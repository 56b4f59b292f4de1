"""One runner: the lock, and who holds it.

The guardian gets the descriptor too, so that the lock outlives a killed runner until its programs are gone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec

from agentrun.errors import BusyError, UsageError
from agentrun.store.port import Holder, Lease
from agentrun.system.disk import Disk, Held, first_moved, open_to_read
from agentrun.system.process import has_open, is_alive

NAME = "lock"
TRIES_AT_LEAST = 4
"""Readers ask whether the lock is held, which may make one try fail; a runner fails them all."""


class FolderLease(Lease):
    """An flock on the file `lock`."""

    def __init__(self, held: Held, *, mark: str, left_mark: str, on_release: Callable[[], None]) -> None:
        self.mark = mark
        self.left_mark = left_mark
        self.held: Held | None = held
        """The lock file, as this runner has signed it."""
        self._on_release = on_release

    @property
    def fd(self) -> int | None:
        return self.held.fd if self.held is not None else None

    @property
    def is_lost(self) -> bool:
        return self.held is None or first_moved(self.held) is not None

    def release(self) -> None:
        # Closed, not unlocked: the guardian may still hold it on purpose. Never unlinked: that gives two holders.
        if self.held is not None:
            self._on_release()
            try:
                self.held.stat()
                os.ftruncate(self.held.fd, 0)
            except OSError:
                pass  # a dead disk was reported before; this is only for people to read
            self.held.close()
            self.held = None


class Lock:
    """The lock file of one job's folder."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._path = folder / NAME
        self._disk = disk

    def acquire(self, *, wait_seconds: float, on_release: Callable[[], None] = lambda: None) -> FolderLease:
        from filelock import lock_descriptor

        deadline = time.monotonic() + wait_seconds
        for tries in count(1):
            # Opened anew at each try: a lock file that somebody unlinked would give two holders.
            fd = self._disk.open(str(self._path), os.O_RDWR | os.O_CREAT)
            if lock_descriptor(fd, blocking=False) and self._is_at_path(fd):
                break
            os.close(fd)
            if tries >= TRIES_AT_LEAST and time.monotonic() >= deadline:
                raise self._busy()
            time.sleep(0.005 if tries < TRIES_AT_LEAST else 0.05)
        left = read_holder(self._path)
        mark = secrets.token_hex(8)
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(Holder.of_this_process(mark=mark)) + b"\n", 0)
        held, found = Held(fd, str(self._path)), os.fstat(fd)
        # Where flock does nothing, a second runner signs the same file: its time tells.
        held.stamp = (found.st_mtime_ns, found.st_size)
        left_mark = left.mark if left is not None else ""
        return FolderLease(held, mark=mark, left_mark=left_mark, on_release=on_release)

    def _is_at_path(self, fd: int) -> bool:
        ours = os.fstat(fd)
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino)

    def _busy(self) -> BusyError:
        job = self._path.parent.name
        holder = read_holder(self._path)
        if holder is None:
            who = "it has just started"
        elif holder.place == "here" and not is_alive(holder.pid, holder.started):
            who = f"pid {holder.pid} has exited, and what it started is still being stopped"
        else:
            who = holder.describe()
        stop = f"with: agentrun stop {job}" if holder is None or holder.place == "here" else "there"
        return BusyError(f"{job}: another runner has this job ({who}); wait for it, or stop it {stop}", holder=who)


def read_holder(path: Path) -> Holder | None:
    """Who took the lock last and has not given it back, without touching it."""
    try:
        with open_to_read(path) as file:
            return _decode(file.read())
    except OSError:
        return None


def live_holder(folder: Path) -> Holder | None:
    """Who is at work on the job right now: the one that the lock file names, if the lock is held.

    The lock says it, not the pid: that means nothing in another container. Only where the holder should be a process
    of ours and is gone, what holds the lock is its guardian, and nobody is at work.
    """
    try:
        with open_to_read(folder / NAME) as file:
            holder = _decode(file.read())
            if holder is None or is_locked(file.fileno()) is False:
                return None
    except OSError:
        return None
    return holder if holder.place != "here" or is_alive(holder.pid, holder.started) else None


def is_locked(fd: int) -> bool | None:
    """Whether a runner holds the lock file that is open here; None on a file system without flock.

    Where nobody holds it, this holds it shared for an instant, which a runner that is starting just then gets over:
    see TRIES_AT_LEAST.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # over NFS it may be either
        return True
    except OSError:
        return None
    # Not left to the closing: a child forked meanwhile would keep it.
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def signal_holder(folder: Path, holder: Holder) -> None:
    """Ask the runner to stop; no other process is signalled, whatever the lock file says."""
    job = folder.name
    if holder.place != "here":
        raise UsageError(f"{job}: its runner is {holder.describe()}; stop it there")
    try:
        if not has_open(holder.pid, os.lstat(folder / NAME)):
            raise UsageError(f"{job}: pid {holder.pid} does not hold {folder / NAME}, and is left alone")
        os.kill(holder.pid, signal.SIGTERM)
    except (ProcessLookupError, FileNotFoundError):
        pass  # it has exited by itself
    except PermissionError:
        raise UsageError(f"{job}: pid {holder.pid} belongs to another user; stop it as that user") from None


def _decode(text: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(text, type=Holder)
    except ValueError:
        return None

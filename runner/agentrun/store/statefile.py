"""The file state.json: the next one is written under a name that nobody reads, and takes its place by a rename.

The one that was replaced is kept under a temporary name, for the next but one to be written over it: to make a file and
free another takes a file system half as long again. That must not be seen by anybody who reads the old one, so that
only a file is written over which has no other name and which nobody else has open. Where the system can't say so, each
is a new one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from agentrun.store.disk import Disk, discard, temporary_name

# A lease is granted only if nobody else has the file open, and while it is held, who opens it has to wait. Linux only.
_LEASE: int | None = getattr(fcntl, "F_SETLEASE", None)
_LEASE_SIGNAL: int | None = getattr(fcntl, "F_SETSIG", None)

_Identity = tuple[int, int]
"""Device and inode."""


@dataclass(slots=True)
class Written:
    """A state.json that is written, and not yet or no longer in its place."""

    path: str
    fd: int
    identity: _Identity = (0, 0)


class StateFile:
    """`path`, and at most one that was there before."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.path = folder / "state.json"
        self._folder, self._name = str(folder), str(self.path)
        self._disk = disk
        self._stored: _Identity | None = None
        self._current: Written | None = None
        self._spare: Written | None = None
        self._keeps = _LEASE is not None

    def is_as_left(self) -> bool:
        """Is it the one that we read, or put there?"""
        return _identity(self._name) == self._stored

    def adopt(self) -> None:
        """What is there now is what was read."""
        self.forget()
        self._stored = _identity(self._name)

    def forget(self) -> None:
        """There is none, and none before it."""
        self._stored = None
        if self._spare is not None:
            self.drop(self._spare)
        if self._current is not None:
            self._disk.close(self._current.fd)
        self._spare = self._current = None

    def write(self, text: bytes) -> Written:
        """The next one. It is to be put in its place, or dropped."""
        return self._write_over(text) or self._make(text)

    def replace(self, new: Written, folder_fd: int) -> None:
        """Durably. Only when the folder is synced too is the one before free to be written over."""
        kept = ""
        try:
            self._disk.fsync(new.fd)
            kept = self._keep()
            self._disk.replace(new.path, self._name)
            self._disk.fsync(folder_fd)
        except BaseException:
            if kept:
                discard(self._disk, kept)
            raise
        before, self._current, self._stored = self._current, new, new.identity
        if before is not None and kept:
            before.path, self._spare = kept, before
        elif before is not None:
            self._disk.close(before.fd)

    def drop(self, one: Written) -> None:
        """It is not wanted, or failed on its way."""
        self._disk.close(one.fd)
        discard(self._disk, one.path)

    def _keep(self) -> str:
        """Another name for the one that is about to be replaced; empty where it is not kept."""
        if self._current is None or not self._keeps:
            return ""
        path = temporary_name(self._folder, self.path.name)
        try:
            self._disk.link(self._name, path)
        except OSError:
            # Not every file system has links.
            self._keeps = False
            return ""
        return path

    def _make(self, text: bytes) -> Written:
        path = temporary_name(self._folder, self.path.name)
        new = Written(path, self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        try:
            self._disk.write(new.fd, text, 0)
            new.identity = _identity_of(os.fstat(new.fd))
        except BaseException:
            self.drop(new)
            raise
        return new

    def _write_over(self, text: bytes) -> Written | None:
        spare, self._spare = self._spare, None
        if spare is None:
            return None
        try:
            if (size := self._seize(spare)) is not None:
                self._disk.write(spare.fd, text, 0)
                if size > len(text):
                    self._disk.truncate(spare.fd, len(text))
                _release(spare.fd)
                return spare
        except BaseException:
            self.drop(spare)
            raise
        self.drop(spare)
        return None

    def _seize(self, spare: Written) -> int | None:
        """Its size, if it is ours alone: then nobody can open it until it is released, or closed. None if it is not."""
        try:
            _lease(spare.fd)
        except OSError as error:
            # Somebody is reading it; or there are no leases here, and will be none.
            self._keeps = error.errno == errno.EAGAIN
            return None
        try:
            found = os.lstat(spare.path)
        except FileNotFoundError:
            return None
        # Not somebody's hard link, nor what somebody put in its place, nor what others were given to read.
        is_ours = _identity_of(found) == spare.identity and found.st_nlink == 1 and not found.st_mode & 0o077
        return found.st_size if is_ours else None


def _lease(fd: int) -> None:
    assert _LEASE is not None and _LEASE_SIGNAL is not None
    # Who waits for it is announced by a signal: not by the usual one, which ends a process that does not expect it.
    fcntl.fcntl(fd, _LEASE_SIGNAL, signal.SIGURG)
    fcntl.fcntl(fd, _LEASE, fcntl.F_WRLCK)


def _release(fd: int) -> None:
    assert _LEASE is not None
    fcntl.fcntl(fd, _LEASE, fcntl.F_UNLCK)


def _identity_of(found: os.stat_result) -> _Identity:
    return (found.st_dev, found.st_ino)


def _identity(path: str) -> _Identity | None:
    try:
        return _identity_of(os.lstat(path))
    except FileNotFoundError:
        return None

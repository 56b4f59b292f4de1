"""The file state.json: the next one is written under a name that nobody reads, and takes its place by a rename.

The one that was replaced is kept under a temporary name, for the next but one to be written over it: that spares the
file system from making a file and freeing another for each commit. It must not be seen by anybody who reads the old
one, so that only a file is written over which has no other name and which nobody has open. Where that cannot be
known, each is a new one. Why it is safe: runner/DESIGN.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agentrun.system.disk import Disk, discard, is_local, temporary_name

_REFUSALS = 3
"""In a row: then it is not asked again."""
_Identity = tuple[int, int]
"""Device and inode."""


@dataclass(slots=True)
class Written:
    """A state.json that is written, and neither synced nor in its place."""

    path: str
    fd: int
    identity: _Identity


class StateFile:
    """`path`, and at most one that was there before. No descriptor is kept: a file system over a network can't replace
    one that is open without taking it away first."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.path = folder / "state.json"
        self._folder, self._name = str(folder), str(self.path)
        self._disk = disk
        self._stored: _Identity | None = None
        self._is_ours = False
        """We put it there; it is not only the one that was read."""
        self._spare: tuple[str, _Identity] | None = None
        self._keeps: bool | None = None
        """Whether what is replaced is kept; unknown before the first time."""
        self._refusals = 0

    def is_as_left(self) -> bool:
        """Is it the one that we read, or put there?"""
        return _identity(self._name) == self._stored

    def adopt(self) -> None:
        """What is there now is what was read."""
        self.forget()
        self._stored = _identity(self._name)

    def forget(self) -> None:
        """From here on there is none that we know, and none is kept."""
        spare, self._spare, self._stored, self._is_ours = self._spare, None, None, False
        if spare is not None:
            discard(self._disk, spare[0])

    def write(self, text: bytes) -> Written:
        """The next one. It is to be put in its place, or dropped."""
        spare, self._spare = self._spare, None
        return (self._write_over(*spare, text) if spare is not None else None) or self._make(text)

    def replace(self, new: Written, folder_fd: int) -> None:
        """Durably. Only when the folder is synced too is the one before free to be written over."""
        kept = ""
        try:
            try:
                self._disk.fsync(new.fd)
            finally:
                self._disk.close(new.fd)
            kept = self._keep()
            self._disk.replace(new.path, self._name)
            self._disk.fsync(folder_fd)
        except BaseException:
            for path in (new.path, kept):
                if path:
                    discard(self._disk, path)
            raise
        if kept and self._stored is not None:
            self._spare = (kept, self._stored)
        self._stored, self._is_ours = new.identity, True

    def drop(self, new: Written) -> None:
        """It is not put in its place after all."""
        try:
            self._disk.close(new.fd)
        finally:
            discard(self._disk, new.path)

    def _keep(self) -> str:
        """A second name for the one that is about to be replaced; empty where it is not kept."""
        if self._keeps is None:
            self._keeps = is_local(self._folder)
        if not self._is_ours or not self._keeps:
            return ""
        path = temporary_name(self._folder, self.path.name)
        try:
            self._disk.link(self._name, path)
        except OSError:
            self._keeps = False
            return ""
        return path

    def _make(self, text: bytes) -> Written:
        path = temporary_name(self._folder, self.path.name)
        new = Written(path, self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), (0, 0))
        try:
            self._disk.write(new.fd, text, 0)
            new.identity = _identity_of(os.fstat(new.fd))
        except BaseException:
            self.drop(new)
            raise
        return new

    def _write_over(self, path: str, identity: _Identity, text: bytes) -> Written | None:
        """None if it is not ours alone; then it is gone."""
        is_whole = False
        try:
            new = Written(path, self._disk.open(path, os.O_WRONLY), identity)
            try:
                is_whole = self._is_written_over(new, text)
            finally:
                if not is_whole:
                    self._disk.close(new.fd)
        except FileNotFoundError:
            return None
        finally:
            if not is_whole:
                discard(self._disk, path)
        return new if is_whole else None

    def _is_written_over(self, new: Written, text: bytes) -> bool:
        try:
            # From here on nobody else can open it.
            self._disk.lease(new.fd)
        except OSError:
            # Somebody has it open; or, for ever, there are no leases here.
            self._refusals += 1
            self._keeps = self._refusals < _REFUSALS
            return False
        try:
            found = os.fstat(new.fd)
            # Not somebody's hard link, nor what was put in its place, nor what others were given to read.
            if _identity_of(found) != new.identity or found.st_nlink != 1 or found.st_mode & 0o077:
                return False
            self._disk.write(new.fd, text, 0)
            if found.st_size > len(text):
                self._disk.truncate(new.fd, len(text))
        finally:
            is_held = self._disk.unlease(new.fd)
        self._refusals = 0
        return is_held


def _identity_of(found: os.stat_result) -> _Identity:
    return (found.st_dev, found.st_ino)


def _identity(path: str) -> _Identity | None:
    try:
        return _identity_of(os.lstat(path))
    except FileNotFoundError:
        return None

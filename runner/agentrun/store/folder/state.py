"""The file state.json: each commit writes a new file under a temporary name, and renames it over the old one.

No file that was once state.json is ever written to again, so whoever has it open reads one state, whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint, decode_checkpoint
from agentrun.errors import CheckpointError
from agentrun.store.folder.journal import journal_number
from agentrun.system.disk import Disk, discard, temporary_name

NAME = "state.json"

_Identity = tuple[int, int, int, int]
"""Device, inode, time and size: a file system may use an inode again at once."""


@dataclass(frozen=True, slots=True)
class Written:
    """A new state.json that is neither synced nor in its place yet."""

    path: str
    fd: int
    identity: _Identity


class StateFile:
    """state.json in one folder, and whether it is still the one that this process read or wrote."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.path = folder / NAME
        self._folder, self._name = str(folder), str(self.path)
        self._disk = disk
        self._stored: _Identity | None = None

    def exists(self) -> bool:
        return os.path.lexists(self._name)

    def read(self) -> bytes:
        """Its text, remembering which file it was."""
        with os.fdopen(os.open(self._name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            self._stored = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
            return file.read()

    def forget(self) -> None:
        """There is no state.json from here on."""
        self._stored = None

    def is_as_left(self) -> bool:
        """Whether it is the file that this process read or put there last."""
        try:
            found = os.lstat(self._name)
        except FileNotFoundError:
            return self._stored is None
        return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size) == self._stored

    def write(self, text: bytes) -> Written:
        """Write the next one under a temporary name; then either `replace` with it or `drop` it."""
        path = temporary_name(self._folder, NAME)
        fd = self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            self._disk.write(fd, text, 0)
            found = os.fstat(fd)
            return Written(path, fd, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
        except BaseException:
            self._disk.close(fd)
            discard(self._disk, path)
            raise

    def replace(self, new: Written, folder_fd: int) -> None:
        """Put the new one in its place, durably."""
        try:
            try:
                self._disk.fsync(new.fd)
            finally:
                self._disk.close(new.fd)
            self._disk.replace(new.path, self._name)
            self._disk.fsync(folder_fd)
        except BaseException:
            discard(self._disk, new.path)
            raise
        self._stored = new.identity

    def drop(self, new: Written) -> None:
        """The new one does not take its place after all."""
        try:
            self._disk.close(new.fd)
        finally:
            discard(self._disk, new.path)

    def unlink(self) -> None:
        if self.exists():
            self._disk.unlink(self._name)


def read_checkpoint(text: bytes, path: Path, *, accept_edits: bool = False) -> Checkpoint:
    """The checkpoint in a state.json, which names one of our journals."""
    checkpoint = decode_checkpoint(text, where=str(path), accept_edits=accept_edits)
    if journal_number(checkpoint.journal.name) is None:
        raise CheckpointError(
            f"{path}: journal.name is {checkpoint.journal.name!r}, which is not a journal's; put the original back, "
            f"or start over with --fresh (the old one is kept)"
        )
    return checkpoint

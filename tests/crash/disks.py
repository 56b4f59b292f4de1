"""Disks for the crash tests: one that records, one that fails at the n-th call, one that dies there, one that writes
a little at a time. All of them do the real thing as well."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from agentrun.system.disk import Disk
from crash.model import (
    Create,
    Link,
    MakeFolder,
    Model,
    Operation,
    Rename,
    SyncFile,
    SyncFolder,
    Truncate,
    Unlink,
    Write,
)

T = TypeVar("T")
Call = Literal["open", "write", "fsync", "replace", "link", "unlink", "mkdir"]
CALLS: tuple[Call, ...] = ("open", "write", "fsync", "replace", "link", "unlink", "mkdir")


def folder_of(fd: int) -> str | None:
    """The path of a descriptor that is a folder's."""
    path = os.readlink(f"/proc/self/fd/{fd}")
    return path if os.path.isdir(path) else None


class RecordingDisk(Disk):
    """Writes each operation down, in `model` and in `log`, with paths relative to `base`."""

    def __init__(self, base: Path, model: Model | None = None) -> None:
        self.base = os.path.realpath(base)
        self.model = model or Model()
        self.log: list[Operation] = []
        self._files: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, operation: Operation) -> None:
        with self._lock:
            self.log.append(operation)
            self.model.apply(operation)

    def _name(self, path: str) -> str:
        return os.path.relpath(os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path), self.base)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        name = self._name(path)
        inode = self.model.visible.get(name)
        if inode is None:
            inode = self.model.new_inode()
            self.add(Create(name, inode))
        elif flags & os.O_TRUNC:
            self.add(Truncate(inode))
        self._files[fd] = (inode, 0)
        return fd

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        written = super().write_some(fd, data, offset)
        inode, position = self._files[fd]
        at = position if offset is None else offset
        self.add(Write(inode, at, bytes(data[:written])))
        if offset is None:
            self._files[fd] = (inode, position + written)
        return written

    def copy_some(self, source: int, fd: int) -> int:
        copied = super().copy_some(source, fd)
        if copied:
            inode, position = self._files[fd]
            self.add(Write(inode, position, os.pread(fd, copied, position)))
            self._files[fd] = (inode, position + copied)
        return copied

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        folder = folder_of(fd)
        self.add(SyncFile(self._files[fd][0]) if folder is None else SyncFolder(os.path.relpath(folder, self.base)))

    def close(self, fd: int) -> None:
        super().close(fd)
        del self._files[fd]

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.add(Rename(self._name(source), self._name(target)))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.add(Unlink(self._name(path)))

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self.add(Link(self._name(source), self._name(target)))

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        super().mkdir(path, mode)
        self.add(MakeFolder(self._name(path)))

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self.add(Unlink(self._name(path)))


class FaultyDisk(Disk):
    """Does `fault()` at the n-th call of one kind: before it is done, or `after`. A failing write has written half."""

    def __init__(self, call: Call, n: int, fault: Callable[[], None], *, after: bool = False) -> None:
        self.calls: list[tuple[Call, str]] = []
        """Each call begun, with the path it was for."""
        self.failed_at: int | None = None
        """The position in `calls` of the one that was hit."""
        self._call = call
        self._n = n
        self._fault = fault
        self._after = after
        self._counts = dict.fromkeys(CALLS, 0)

    def __str__(self) -> str:
        return f"{self._call} number {self._n}{' when it was done' if self._after else ''}"

    def _around(self, call: Call, target: str, do: Callable[[], T], instead: Callable[[], object] = int) -> T:
        self._counts[call] += 1
        self.calls.append((call, target))
        if call != self._call or self._counts[call] != self._n:
            return do()
        self.failed_at = len(self.calls) - 1
        if self._after:
            done = do()
            self._fault()
            return done
        instead()
        self._fault()
        raise AssertionError("a fault raises, or ends the process")

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return self._around("open", path, lambda: super(FaultyDisk, self).open(path, flags, mode))

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        def write(part: memoryview) -> int:
            return super(FaultyDisk, self).write_some(fd, part, offset)

        return self._around("write", _path_of(fd), lambda: write(data), lambda: write(data[: len(data) // 2]))

    def copy_some(self, source: int, fd: int) -> int:
        return self._around("write", _path_of(fd), lambda: super(FaultyDisk, self).copy_some(source, fd))

    def fsync(self, fd: int) -> None:
        self._around("fsync", _path_of(fd), lambda: super(FaultyDisk, self).fsync(fd))

    def replace(self, source: str, target: str) -> None:
        self._around("replace", target, lambda: super(FaultyDisk, self).replace(source, target))

    def link(self, source: str, target: str) -> None:
        self._around("link", target, lambda: super(FaultyDisk, self).link(source, target))

    def unlink(self, path: str) -> None:
        self._around("unlink", path, lambda: super(FaultyDisk, self).unlink(path))

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        self._around("mkdir", path, lambda: super(FaultyDisk, self).mkdir(path, mode))


class ShortDisk(Disk):
    """Writes at most a few bytes at a time, as a system call may."""

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        return super().write_some(fd, data[:7], offset)


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")

"""Disks and files for the tests of the folder store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from agentrun.system.disk import Disk


def temporaries(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def edit_state(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "state.json"
    state = orjson.loads(path.read_bytes())
    change(state)
    path.write_bytes(orjson.dumps(state, option=orjson.OPT_INDENT_2))


class FaultyDisk(Disk):
    """From the n-th call of an operation on, an error; it counts the fsyncs after the first error."""

    def __init__(self, operation: str, *, code: int = errno.EIO) -> None:
        self.operation = operation
        self.code = code
        self.left: int | None = None
        self.fsyncs_after = 0

    def arm(self, after: int) -> None:
        self.left = after

    def _step(self, operation: str) -> None:
        if self.left is not None and self.left < 0 and operation == "fsync":
            self.fsyncs_after += 1
        if self.left is None or operation != self.operation:
            return
        self.left -= 1
        if self.left < 0:
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._step("open")
        return super().open(path, flags, mode)

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        self._step("write")
        # A short write is continued.
        return super().write_some(fd, data[: max(1, len(data) // 2)], offset)

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        super().fsync(fd)

    def replace(self, source: str, target: str) -> None:
        self._step("replace")
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        super().unlink(path)


class RecordingDisk(Disk):
    """The operations on names, and the fsyncs, in their order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._names: dict[int, str] = {}

    def _named(self, path: str) -> str:
        name = Path(path).name
        return "tmp" if name.endswith(".tmp") else name

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self._names[fd] = self._named(path)
        return fd

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        self.calls.append(f"write {self._names.get(fd, 'folder')}")
        return super().write_some(fd, data, offset)

    def fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}") if Path("/proc/self/fd").exists() else ""
        self.calls.append(f"fsync {self._named(path)}")
        super().fsync(fd)

    def replace(self, source: str, target: str) -> None:
        self.calls.append(f"replace {self._named(target)}")
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self.calls.append(f"unlink {self._named(path)}")
        super().unlink(path)


class Killed(BaseException):
    """The process is gone."""


class MortalDisk(Disk):
    """Dies at the n-th call that changes something, and does nothing after that."""

    def __init__(self) -> None:
        self.left = -1
        self.is_dead = False

    def _step(self) -> None:
        self.left -= 1
        if self.is_dead or self.left == 0:
            self.is_dead = True
            raise Killed

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._step()
        return super().open(path, flags, mode)

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        self._step()
        return super().write_some(fd, data, offset)

    def replace(self, source: str, target: str) -> None:
        self._step()
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        self._step()
        super().mkdir(path, mode)

    def rmdir(self, path: str) -> None:
        self._step()
        super().rmdir(path)

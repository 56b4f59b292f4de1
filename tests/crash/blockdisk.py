"""A disk that writes down what reaches it: a small FUSE server with one file, `disk`, for a loop device to lie on.

The file system above it is the kernel's own. Its writes arrive here as writes of that file, in the order in which the
loop driver handles them, and its flushes as fsync. FUA arrives as a write and a flush, as the loop driver has no FUA.
A second file, `marks`, takes what the tester wants to have in the same log: a mark stands behind everything that was
answered before it was made.

It speaks the kernel's protocol itself (linux/fuse.h), so no library or program is needed.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import struct
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from crash.mounting import DETACH, die_with_parent, mount, unmount
from waiting import eventually


class Kind(IntEnum):
    WRITE = 1
    FLUSH = 2
    MARK = 3


class Entry(NamedTuple):
    kind: Kind
    offset: int
    """Of a write."""
    data: bytes


_ENTRY = struct.Struct("<BQI")


def read_log(path: Path) -> list[Entry]:
    text, at, entries = path.read_bytes(), 0, []
    while at < len(text):
        kind, offset, length = _ENTRY.unpack_from(text, at)
        at += _ENTRY.size
        entries.append(Entry(Kind(kind), offset, text[at : at + length]))
        at += length
    return entries


def check_served() -> None:
    """Raises an OSError if no disk can be served here."""
    os.close(os.open("/dev/fuse", os.O_RDWR))


@dataclass(frozen=True, slots=True)
class BlockDisk:
    disk: Path
    """For the loop device."""
    marks: Path


@contextmanager
def block_disk(image: Path, log: Path, mount_point: Path) -> Iterator[BlockDisk]:
    """Serve the image, which is written to, and log what reaches it. In the end the log is complete."""
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        mount("agentrun", mount_point, "fuse", f"fd={fuse},rootmode=40000,user_id=0,group_id=0")
        parent, server = os.getpid(), os.fork()
        if not server:
            code = 1
            try:
                die_with_parent(parent)
                _Server(fuse, image, log).serve()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
    finally:
        # The server's is the last one, so that its death ends the connection, and nobody waits for it.
        os.close(fuse)
    try:
        yield BlockDisk(mount_point / "disk", mount_point / "marks")
        eventually(lambda: unmount(mount_point), f"{mount_point} unmounted")
    except BaseException:
        # Whoever waits for it now gets an error.
        os.kill(server, signal.SIGKILL)
        raise
    finally:
        unmount(mount_point, DETACH)
        _, status = os.waitpid(server, 0)
    assert status == 0, f"the disk's server ended with {os.waitstatus_to_exitcode(status)}"


# ---- the server

_ROOT, _DISK, _MARKS = 1, 2, 3
_NAMES = {b"disk": _DISK, b"marks": _MARKS}
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
_FSYNC, _FLUSH, _INIT, _OPENDIR, _RELEASEDIR, _INTERRUPT, _DESTROY, _BATCH_FORGET = 20, 25, 26, 27, 29, 36, 38, 42
_UNANSWERED = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_BIG_WRITES = 1 << 5
_DIRECT_IO = 1
_MAX_WRITE = 128 << 10
_REQUEST = struct.Struct("<IIQQ16x")
_ANSWER = struct.Struct("<IiQ")
_READ_OR_WRITE = struct.Struct("<8xQI20x")
_INIT_ANSWER = struct.Struct("<4I2H2I36x")
_ATTRIBUTES = struct.Struct("<3Q24x12xII12xI4x")
_VERSION = (7, 31)


class _Server:
    def __init__(self, fuse: int, image: Path, log: Path) -> None:
        self._fuse = fuse
        self._image = os.open(image, os.O_RDWR)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._size = os.fstat(self._image).st_size

    def serve(self) -> None:
        """Until it is unmounted."""
        os.set_blocking(self._fuse, False)
        while True:
            select.select([self._fuse], [], [])
            try:
                requests = list(self._waiting())
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            # Of these, none was answered when the others were asked: a flush among them covers no write among them.
            for opcode, unique, node, body in sorted(requests, key=lambda one: one[0] != _FSYNC):
                if opcode not in _UNANSWERED:
                    self._answer(unique, *self._do(opcode, node, body))

    def _waiting(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The requests that are there: opcode, id, node, and the rest."""
        while True:
            try:
                text = os.read(self._fuse, _MAX_WRITE + 4096)
            except BlockingIOError:
                return
            except FileNotFoundError:
                # It was taken back before it was read.
                continue
            _, opcode, unique, node = _REQUEST.unpack_from(text)
            yield opcode, unique, node, text[_REQUEST.size :]

    def _answer(self, unique: int, code: int, body: bytes) -> None:
        try:
            os.writev(self._fuse, [_ANSWER.pack(_ANSWER.size + len(body), -code, unique), body])
        except FileNotFoundError:
            # Nobody waits for it any more.
            pass

    def _do(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        """An error's number or 0, and the answer."""
        if opcode == _WRITE:
            offset, length = _READ_OR_WRITE.unpack_from(body)
            data = body[_READ_OR_WRITE.size :][:length]
            if node == _DISK:
                os.pwrite(self._image, data, offset)
            self._note(Kind.WRITE if node == _DISK else Kind.MARK, offset, data)
            return 0, struct.pack("<I4x", length)
        if opcode == _FSYNC:
            if node == _DISK:
                self._note(Kind.FLUSH)
            return 0, b""
        if opcode == _READ:
            offset, length = _READ_OR_WRITE.unpack_from(body)
            return 0, os.pread(self._image, length, offset) if node == _DISK else b""
        if opcode == _INIT:
            return 0, _INIT_ANSWER.pack(*_VERSION, 0, _BIG_WRITES, 0, 0, _MAX_WRITE, 1)
        if opcode == _LOOKUP:
            found = _NAMES.get(body.rstrip(b"\0"))
            return (0, struct.pack("<Q32x", found) + self._attributes(found)) if found else (errno.ENOENT, b"")
        if opcode in (_GETATTR, _SETATTR):
            return 0, bytes(16) + self._attributes(node)
        if opcode in (_OPEN, _OPENDIR):
            # Nothing of it in the page cache, from which writes would come late, in another order, or only once of two.
            return 0, struct.pack("<QI4x", 0, _DIRECT_IO)
        if opcode in (_RELEASE, _RELEASEDIR, _FLUSH, _DESTROY):
            return 0, b""
        if opcode == _STATFS:
            return 0, bytes(80)
        # Also for discarding: then it is zeros that are written.
        return errno.ENOSYS, b""

    def _attributes(self, node: int) -> bytes:
        size = self._size if node == _DISK else 0
        mode = stat.S_IFDIR | 0o700 if node == _ROOT else stat.S_IFREG | 0o600
        return _ATTRIBUTES.pack(node, size, size // 512, mode, 1, 4096)

    def _note(self, kind: Kind, offset: int = 0, data: bytes = b"") -> None:
        os.writev(self._log, [_ENTRY.pack(kind, offset, len(data)), data])

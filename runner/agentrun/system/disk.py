"""All calls that change the disk, in one place.

The crash tests put their own Disk here: one that records, fails at the n-th call, or kills the process there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from agentrun.errors import DiskError, UsageError

PIECE_BYTES = 1 << 20
"""How much of a file is read, or gathered to be written, at a time."""
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Disk:
    """The system calls themselves. Errors are OSErrors; `write` continues after a short write."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def write(self, fd: int, data: bytes, offset: int | None = None) -> None:
        view = memoryview(data)
        while view:
            written = self.write_some(fd, view, offset)
            view = view[written:]
            if offset is not None:
                offset += written

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        return os.write(fd, data) if offset is None else os.pwrite(fd, data, offset)

    def fsync(self, fd: int) -> None:
        # macOS's fsync leaves the data in the drive's own cache.
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)


def sync_folder(disk: Disk, folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.fsync(fd)
    finally:
        os.close(fd)


def temporary_name(folder: Path | str, name: str) -> str:
    """In the same folder: a rename is atomic only within one file system. Random: nobody can plant a file there."""
    return f"{folder}/.{name}.{secrets.token_hex(6)}.tmp"


def is_temporary(name: str, of: str | None = None) -> bool:
    """Whether it is the name of a temporary file, perhaps left by a launch that died; with `of`, one of that file."""
    found = _TEMPORARY.fullmatch(name)
    return found is not None and of in (None, found[1])


def replace_file(disk: Disk, path: Path, chunks: Iterable[bytes], *, mode: int = 0o600) -> None:
    """Replace `path` with `chunks`, atomically and durably."""
    temporary = temporary_name(path.parent, path.name)
    fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            for chunk in chunks:
                disk.write(fd, chunk)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.replace(temporary, str(path))
    except BaseException:
        discard(disk, temporary)
        raise
    sync_folder(disk, path.parent)


def discard(disk: Disk, path: str) -> None:
    """Unlink a file that may not exist; one that cannot be unlinked is left for the next launch to prune."""
    try:
        disk.unlink(path)
    except OSError:
        pass


def discard_temporaries(disk: Disk, path: Path) -> None:
    """Unlink temporaries beside `path`, left by launches that died while writing it."""
    for name in os.listdir(path.parent):
        if is_temporary(name, path.name):
            discard(disk, str(path.parent / name))


def secure_folder(disk: Disk, folder: Path) -> None:
    """Make `folder`; refuse an existing one that others could tamper with."""
    made = True
    try:
        disk.mkdir(str(folder))
    except FileExistsError:
        made = False
    except FileNotFoundError:
        above = folder.parent
        raise UsageError(f"{above}: there is no such folder; make it with: mkdir -p {quote(str(above))}") from None
    try:
        # Even if it exists already: the launch that made it may have been killed before this.
        sync_folder(disk, folder.parent)
    except PermissionError:
        # If others made the folder for us, its parent may be closed to us.
        if made:
            raise
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Refuse a folder that others could tamper with."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{folder}: is not a folder (links are not followed); move it away")
    if found.st_uid != os.geteuid():
        raise UsageError(f"{folder}: belongs to another user (uid {found.st_uid}); use --state-dir")
    if found.st_mode & 0o022:
        raise UsageError(f"{folder}: can be written by others; fix it with: chmod 700 {quote(str(folder))}")


def disk_error(where: Path | str, error: OSError) -> DiskError:
    """A DiskError for an OSError: where, what, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full; make room"
    elif error.errno == errno.EFBIG:
        what = "the limit on file size is reached; raise it"
    elif error.errno == errno.EROFS:
        what = "the file system is read-only; make it writable, or use --state-dir"
    elif error.errno in (errno.EACCES, errno.EPERM):
        what = "permission denied; make it writable, or use --state-dir"
    elif error.errno == errno.ELOOP:
        what = "is a symbolic link, which is never followed here; remove it"
    else:
        what = f"{os.strerror(error.errno or 0)}; check the disk"
    return DiskError(f"{where}: {what}, then run the same command again: nothing finished is lost", errno=error.errno)


@contextmanager
def disk_errors(path: Path | str) -> Iterator[None]:
    """Raise an OSError of the block as a DiskError: about the file it names, or about `path`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error.filename or path, error) from error

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from shlex import quote

from agentrun.errors import DiskError, LaterError, UsageError
from agentrun.system.shortage import lacking
from agentrun.system.trust import check_folder as check_folder

PIECE_BYTES = 1 << 20
"""How much of a file is read, or gathered to be written, at a time."""
COPY_BYTES = 1 << 26
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp", re.DOTALL)
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Disk:
    """The system calls themselves. Errors are OSErrors; `write` continues after a short write."""

    _spare: int | None = None
    _is_lent = False

    def reserve(self) -> None:
        """Keep one descriptor back, for when agents in this process have used up all others."""
        try:
            self._spare, self._is_lent = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), False
        except OSError:
            pass  # tried again after the next close

    def release(self) -> None:
        """Give the reserved descriptor back."""
        self._is_lent = False
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        try:
            return open_file(path, flags, mode)
        except OSError as error:
            if error.errno != errno.EMFILE or self._spare is None:
                raise
        self.release()
        self._is_lent = True
        return open_file(path, flags, mode)

    def write(self, fd: int, data: bytes, offset: int | None = None) -> None:
        view = memoryview(data)
        while view:
            written = self.write_some(fd, view, offset)
            view = view[written:]
            if offset is not None:
                offset += written

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        return os.write(fd, data) if offset is None else os.pwrite(fd, data, offset)

    def copy_some(self, source: int, fd: int) -> int:
        """Have the system copy the next bytes from one file to another; how many, 0 at the end."""
        if not hasattr(os, "copy_file_range"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return os.copy_file_range(source, fd, COPY_BYTES)

    def fsync(self, fd: int) -> None:
        # macOS's fsync leaves the data in the drive's own cache.
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)
        if self._is_lent:
            self.reserve()

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def mkdir(self, path: str, mode: int = 0o700) -> None:
        make_folder(path, mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)


class Held:
    """A file that stays open while users' code runs in this process.

    An agent that closes a file twice may close ours, and the system gives the number to the next file that is opened.
    So the file is looked at again before it is written to, synced or closed. A held inode cannot be reused.
    """

    __slots__ = ("fd", "file", "path", "stamp")

    def __init__(self, fd: int, path: str) -> None:
        found = os.fstat(fd)
        self.fd, self.path = fd, path
        self.file = (found.st_dev, found.st_ino)
        self.stamp: tuple[int, int] | None = None
        """Time and size, of a file that nobody is to change any more."""

    def stat(self) -> os.stat_result:
        """What the system says of the file now; OSError (EBADF) if the number is no longer this file's."""
        found = os.fstat(self.fd)
        if (found.st_dev, found.st_ino) != self.file:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return found

    def close(self) -> None:
        """Close it, unless the number is no longer this file's."""
        try:
            self.stat()
        except OSError:
            return
        os.close(self.fd)


def first_moved(*files: Held) -> Held | None:
    """The first of these files that is no longer held, no longer at its path, or has changed though it has a stamp."""
    for held in files:
        try:
            ours, found = os.fstat(held.fd), os.lstat(held.path)
        except OSError:
            return held
        if (ours.st_dev, ours.st_ino) != held.file or (found.st_dev, found.st_ino) != held.file:
            return held
        if held.stamp is not None and (found.st_mtime_ns, found.st_size) != held.stamp:
            return held
    return None


class NotAFile(OSError):
    """A folder, pipe, device or socket where a file should be."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def open_file(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file. A link is not followed, and a pipe or device is an OSError: nothing is waited for.

    Its owner can read and write a file that is made, whatever the umask.
    """
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise NotAFile(path) from None
        raise
    try:
        found = os.fstat(fd).st_mode
        if not stat.S_ISREG(found):
            raise NotAFile(path)
        if flags & os.O_CREAT and found & 0o600 != 0o600:
            os.fchmod(fd, stat.S_IMODE(found) | 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_to_read(path: str | Path) -> BufferedReader:
    """A regular file, to be read."""
    return os.fdopen(open_file(path, os.O_RDONLY), "rb")


def make_folder(path: str | Path, mode: int = 0o700) -> None:
    """Make a folder that its owner can use, whatever the umask."""
    os.mkdir(path, mode)
    if (made := os.lstat(path).st_mode) & 0o700 != 0o700:
        os.chmod(path, stat.S_IMODE(made) | 0o700)


def make_folders(path: Path) -> None:
    """Make a folder, and those above it, where they are missing."""
    try:
        make_folder(path)
    except FileExistsError:
        pass
    except FileNotFoundError:
        make_folders(path.parent)
        make_folders(path)


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


def replace_file(
    disk: Disk,
    path: Path,
    chunks: Iterable[bytes],
    *,
    mode: int = 0o600,
    check: Callable[[], None] = lambda: None,
    sync: bool = True,
) -> None:
    """Replace `path` with `chunks`, atomically and durably; not if `check`, right before that, raises.

    Without `sync` the name is durable only once the caller has synced the folder.
    """
    temporary = temporary_name(path.parent, path.name)
    fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        try:
            for chunk in chunks:
                disk.write(fd, chunk)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        check()
        disk.replace(temporary, str(path))
    except BaseException:
        discard(disk, temporary)
        raise
    if sync:
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
    elif error.errno == errno.EBADF:
        what = (
            "a descriptor of agentrun's was closed by other code in this process, as by an agent that closes "
            "a file twice; fix the agent"
        )
    elif isinstance(error, NotAFile):
        what = "is not a regular file; remove it"
    else:
        what = lacking(error) or f"{os.strerror(error.errno or 0)}; check the disk"
    failed = DiskError(f"{where}: {what}, then run the same command again: nothing finished is lost", errno=error.errno)
    if lacking(error) is not None:
        # Not the disk's fault, and it may pass.
        failed.exit_code = LaterError.exit_code
    return failed


@contextmanager
def disk_errors(path: Path | str) -> Iterator[None]:
    """Raise an OSError of the block as a DiskError: about the file it names, or about `path`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error.filename or path, error) from error


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise disk_error(folder, error) from error

"""The items' files: the folder that an item works in, and what it leaves as output.

An item has `<job's folder>/work/<digest of its key>[-g<generation>]` with two folders in it: `dir`, its scratch, and
`out`. What an attempt that is done leaves in `out` is published as `<output stem>.files/<name of its key>/`, beside
the results:

1. Each file is copied into a temporary folder beside the destination, hashed there, and fsynced; then the temporary
   folders themselves, from the innermost. Never linked: whoever still has the original open could change the results.
2. What is at the destination is renamed to another temporary name.
3. The temporary folder is renamed to the destination, and the folder that holds it fsynced.
4. What was there before is removed.

Only then may a checkpoint name the files. **Files that a checkpoint names are complete and durable.**

A crash before 3 leaves temporaries, which the next launch sweeps away. A crash between 3 and the checkpoint leaves
files that nothing names; the item is run again, and its next publishing replaces them. In both cases `out` is as it
was: a step that wrote a file there, and is remembered, need not write it again. That is why `out` is not renamed
itself. It goes with the item's folder, once the checkpoint is on disk.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import structs

from agentrun.checkpoint.record import PublishedFile
from agentrun.errors import UsageError
from agentrun.system.disk import (
    PIECE_BYTES,
    Disk,
    Held,
    check_folder,
    disk_errors,
    is_temporary,
    sync_folder,
    temporary_name,
)
from agentrun.values.names import folder_name, work_name
from agentrun.values.text import is_unicode

FILES_MOST, PATH_MOST_BYTES = 1000, 1024
"""Of one item, and of one file's path in `out`: its record names each of them."""
_WORK_NAME = re.compile(r"([0-9a-f]{32})(?:-g[1-9][0-9]*)?")
_NO_COPY_RANGE = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)


class ItemFilesError(ValueError):
    """What an attempt left in `out` cannot be published: the attempt's fault, not the disk's."""


def files_folder(output: Path) -> Path:
    """Where the files of a run with this output are published."""
    return output.with_name(f"{output.stem}.files")


class ItemFiles:
    """The items' folders of one job. Threads may publish in parallel, each for its own item."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self._root = folder / "work"
        self._disk = disk or Disk()
        self._durable: set[Path] = set()
        """Folders of published files whose own directory entry is known to be on disk."""

    @property
    def root(self) -> str:
        """The folder of all items' folders."""
        return str(self._root)

    def work(self, key: str, generation: int) -> Path:
        """The item's folder, which may not exist yet."""
        return self._root / work_name(key, generation)

    def publish(self, work: Path, output: Path, key: str) -> list[PublishedFile]:
        """Make what is in the item's `out` part of the results; return what a record says of it, sorted by path.

        ItemFilesError for what cannot be published, DiskError if the disk fails; both leave `out` as it is.
        """
        for folder in (self._root, work):
            if os.path.lexists(folder):
                check_folder(folder)
        found = _Found.within(work / "out")
        return self._publish(found, work / "out", output, key) if found.files else []

    def carry_over(
        self, files: Sequence[PublishedFile], old_output: Path, new_output: Path, key: str
    ) -> list[PublishedFile] | None:
        """Publish an item's files once more, beside another output, in the same steps; return what a record says of
        them there. None if one is missing, or no longer what was recorded. DiskError if the disk fails."""
        if not files or files_folder(old_output) == files_folder(new_output):
            return None if any(differing_files(old_output.parent, files)) else list(files)
        before = f"{files_folder(old_output).name}/{folder_name(key)}/"
        recorded = {one.path.removeprefix(before): one for one in files if one.path.startswith(before)}
        if len(recorded) < len(files) or any(".." in name.split("/") for name in recorded):
            return None
        try:
            return self._publish(_Found.named(recorded), old_output.parent / before, new_output, key, recorded=recorded)
        except ItemFilesError:
            return None

    def forget(self, key: str, generation: int) -> None:
        """The item is done: remove its folders, including those of earlier generations."""
        for past in range(generation + 1):
            _discard_tree(self._disk, self.work(key, past))

    def sweep(self, is_done: Callable[[bytes], bool], output: Path | None = None) -> None:
        """Remove what launches that died left behind: folders of items that are done (by the digest of their keys), and
        temporaries among the published files of `output`."""
        if os.path.lexists(self._root):
            check_folder(self._root)
            for name in os.listdir(self._root):
                matched = _WORK_NAME.fullmatch(name)
                if matched and is_done(bytes.fromhex(matched[1])):
                    _discard_tree(self._disk, self._root / name)
        if output is not None and _is_folder(home := files_folder(output)):
            for name in os.listdir(home):
                if is_temporary(name):
                    _discard_tree(self._disk, home / name)

    # ---- publishing

    def _make_home(self, home: Path) -> None:
        if home in self._durable and _is_folder(home):
            return
        try:
            self._disk.mkdir(str(home), 0o755)
        except FileExistsError:
            if not _is_folder(home):
                raise UsageError(f"{home}: is not a folder (links are not followed); move it away") from None
        # Even if it exists already: the launch that made it may have been killed before this.
        sync_folder(self._disk, home.parent)
        self._durable.add(home)

    def _publish(
        self,
        found: _Found,
        source: Path,
        output: Path,
        key: str,
        *,
        recorded: Mapping[str, PublishedFile] | None = None,
    ) -> list[PublishedFile]:
        """Put copies of what was found in `source` beside the output. ItemFilesError if they are not as recorded."""
        home, name = files_folder(output), folder_name(key)
        with disk_errors(home):
            self._make_home(home)
            new = Path(temporary_name(home, name))
            try:
                listed = self._gather(found, source, new, mode=stat.S_IMODE(os.stat(home).st_mode))
                for path, was in (recorded or {}).items():
                    if (listed[path].size, listed[path].sha256) != (was.size, was.sha256):
                        raise ItemFilesError(f"{was.path}: is no longer what was recorded")
                self._put_in_place(new, home / name)
            except BaseException:
                _discard_tree(self._disk, new)
                raise
        return [structs.replace(one, path=f"{home.name}/{name}/{path}") for path, one in sorted(listed.items())]

    def _gather(self, found: _Found, source: Path, new: Path, *, mode: int) -> dict[str, PublishedFile]:
        """All that was found, whole and durable under a temporary name. `mode` is that of the folder around it."""
        folder_mode, file_mode = mode & 0o755 | 0o700, mode & 0o644 | 0o600
        folders = [new, *(new / name for name in found.folders)]
        for folder in folders:
            self._disk.mkdir(str(folder), folder_mode)
        listed = {name: self._copy(source / name, new / name, file_mode) for name in found.files}
        for folder in reversed(folders):
            sync_folder(self._disk, folder)
        return listed

    def _copy(self, source: Path, target: Path, mode: int) -> PublishedFile:
        """One file, durably; size, time and hash are the copy's, whatever becomes of the original."""
        # Agents may be at work in this process meanwhile, so both descriptors are looked at again.
        reading = _open_source(source)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            writing = Held(self._disk.open(str(target), flags, mode), str(target))
            try:
                self._copy_content(reading, writing)
                os.fchmod(writing.fd, mode)
                digest, size = hashlib.sha256(), 0
                while piece := os.pread(writing.fd, PIECE_BYTES, size):
                    digest.update(piece)
                    size += len(piece)
                self._disk.fsync(writing.fd)
                return PublishedFile(str(target), size, digest.hexdigest(), writing.stat().st_mtime_ns)
            finally:
                writing.close()
        finally:
            reading.close()

    def _copy_content(self, reading: Held, writing: Held) -> None:
        try:
            while reading.stat() and writing.stat() and self._disk.copy_some(reading.fd, writing.fd):
                pass
        except OSError as error:
            if error.errno not in _NO_COPY_RANGE:
                raise
            # From where it stopped, which is the beginning.
            while reading.stat() and (piece := os.read(reading.fd, PIECE_BYTES)):
                writing.stat()
                self._disk.write(writing.fd, piece)

    def _put_in_place(self, new: Path, target: Path) -> None:
        old = None
        if os.path.lexists(target):
            old = Path(temporary_name(target.parent, target.name))
            self._disk.replace(str(target), str(old))
        self._disk.replace(str(new), str(target))
        sync_folder(self._disk, target.parent)
        if old is not None:
            _discard_tree(self._disk, old)


class _Found:
    """The contents of an `out`: names relative to it, with `/`; folders come before their contents."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.folders: list[str] = []

    @classmethod
    def within(cls, out: Path) -> _Found:
        found = cls()
        try:
            kind = os.lstat(out).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return found
        if not stat.S_ISDIR(kind):
            raise ItemFilesError("out: is no longer a folder (links are not followed); do not replace it")
        with disk_errors(out):
            found._add(out, "")
        return found

    @classmethod
    def named(cls, files: Iterable[str]) -> _Found:
        """What is on record, whether it is there or not."""
        found = cls()
        found.files = sorted(files)
        above = {str(folder) for name in files for folder in PurePosixPath(name).parents}
        found.folders = sorted(above - {"."})
        return found

    def _add(self, folder: Path, before: str) -> None:
        _open_up(folder, before)
        with os.scandir(folder) as entries:
            inner = sorted(entries, key=lambda entry: entry.name)
        for entry in inner:
            name = before + entry.name
            if not is_unicode(name):
                raise ItemFilesError(f"out/{name!a}: its name is not UTF-8, so results cannot name it; rename it")
            if len(name.encode()) > PATH_MOST_BYTES:
                raise ItemFilesError(
                    f"out/{name[:60]}…: its path is longer than {PATH_MOST_BYTES:,} bytes; use fewer or shorter folders"
                )
            if entry.is_dir(follow_symlinks=False):
                self.folders.append(name)
                self._add(folder / entry.name, f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                self.files.append(name)
            else:
                what = "a symbolic link" if entry.is_symlink() else "not a regular file"
                raise ItemFilesError(f"out/{name}: is {what}; only regular files and folders can be published")
        if len(self.files) > FILES_MOST:
            raise ItemFilesError(f"out: holds more than {FILES_MOST:,} files; put them into an archive")


def _open_up(folder: Path, name: str) -> None:
    """Make a folder listable, and removable later, whatever mode the attempt gave it."""
    found = os.lstat(folder)
    if found.st_uid == os.geteuid():
        if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
            os.chmod(folder, 0o700)
    elif not os.access(folder, os.R_OK | os.X_OK):
        raise ItemFilesError(f"out/{name}: cannot be read, because it belongs to another user; give it mode 755")


def differing_files(folder: Path, files: Iterable[PublishedFile]) -> Iterator[tuple[PublishedFile, str]]:
    """The published files that are not as they were recorded, each with what is wrong. `folder` is the results'.

    A file with the size and time of its copy is not read again.
    """
    for one in files:
        try:
            held = _open_source(folder / one.path)
        except (OSError, ItemFilesError):
            yield one, "cannot be read" if os.path.lexists(folder / one.path) else "is missing"
            continue
        try:
            found = held.stat()
            if found.st_size != one.size:
                yield one, f"has {found.st_size} bytes instead of {one.size}"
            elif found.st_mtime_ns != one.mtime_ns:
                with os.fdopen(held.fd, "rb", closefd=False) as file:
                    is_same = hashlib.file_digest(file, "sha256").hexdigest() == one.sha256
                if not is_same:
                    yield one, "was changed"
        finally:
            held.close()


def _open_source(path: Path) -> Held:
    """A regular file, to be read. One that its attempt made unreadable is opened up, unless it has another name too."""
    shown = f"out/…/{path.name}"
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ItemFilesError(f"{shown}: is not a regular file; only those can be published")
        if found.st_uid == os.geteuid() and found.st_nlink == 1 and stat.S_IMODE(found.st_mode) & 0o400 == 0:
            os.chmod(path, 0o600)
        # If it has become a pipe by now: without waiting for whoever should write to it.
        return Held(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), str(path))
    except PermissionError:
        raise ItemFilesError(f"{shown}: cannot be read; check its owner, or give it mode 644") from None
    except (FileNotFoundError, NotADirectoryError):
        raise ItemFilesError(f"{shown}: disappeared while it was published") from None


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _discard_tree(disk: Disk, path: Path) -> None:
    """Remove a folder, or whatever has its name. What cannot be removed is left for the next launch's sweep."""
    try:
        kind = os.lstat(path).st_mode
        if not stat.S_ISDIR(kind):
            disk.unlink(str(path))
            return
        os.chmod(path, 0o700)
        with os.scandir(path) as entries:
            inner = [entry.name for entry in entries]
        for name in inner:
            _discard_tree(disk, path / name)
        disk.rmdir(str(path))
    except (OSError, RecursionError):
        pass

"""The items' files: the folder that an item works in, and what it leaves as output.

An item has `<job's folder>/work/<digest of its key>[-g<generation>]` with two folders in it: `dir`, its scratch, and
`out`. What an attempt that is done leaves in `out` is published as `<output stem>.files/<name of its key>/`, beside
the results:

1. Each file is linked (on another file system: copied) into a temporary folder beside the destination, and fsynced;
   then the temporary folders themselves, from the innermost.
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
from collections.abc import Callable
from pathlib import Path

from agentrun.checkpoint.record import PublishedFile
from agentrun.errors import UsageError
from agentrun.system.disk import (
    PIECE_BYTES,
    Disk,
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
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)


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
        out, home = work / "out", files_folder(output)
        found = _Found.within(out)
        if not found.files:
            return []
        with disk_errors(home):
            self._make_home(home)
            name = folder_name(key)
            new = Path(temporary_name(home, name))
            try:
                listed = self._gather(found, out, new, mode=stat.S_IMODE(os.stat(home).st_mode))
                self._put_in_place(new, home / name)
            except BaseException:
                _discard_tree(self._disk, new)
                raise
        return [
            PublishedFile(f"{home.name}/{name}/{path}", size, sha256) for path, (size, sha256) in sorted(listed.items())
        ]

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

    def _gather(self, found: _Found, out: Path, new: Path, *, mode: int) -> dict[str, tuple[int, str]]:
        """All of `out`, whole and durable under a temporary name. `mode` is that of the folder around it."""
        folder_mode, file_mode = mode & 0o755 | 0o700, mode & 0o644 | 0o600
        folders = [new, *(new / name for name in found.folders)]
        for folder in folders:
            self._disk.mkdir(str(folder), folder_mode)
        listed = {name: self._take(out / name, new / name, file_mode) for name in found.files}
        for folder in reversed(folders):
            sync_folder(self._disk, folder)
        return listed

    def _take(self, source: Path, target: Path, mode: int) -> tuple[int, str]:
        """One file, durably; its size and hash are of what was put there."""
        if not self._link(source, target):
            self._copy(source, target, mode)
        fd = self._disk.open(str(target), os.O_RDONLY)
        try:
            os.fchmod(fd, mode)
            digest, size = hashlib.sha256(), 0
            while piece := os.read(fd, PIECE_BYTES):
                digest.update(piece)
                size += len(piece)
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
        return size, digest.hexdigest()

    def _link(self, source: Path, target: Path) -> bool:
        found = os.lstat(source)
        if found.st_nlink > 1 or found.st_uid != os.geteuid():
            # Shared with somebody else: their later changes, and our change of mode, must not affect each other.
            return False
        os.chmod(source, 0o600)
        try:
            self._disk.link(str(source), str(target))
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True

    def _copy(self, source: Path, target: Path, mode: int) -> None:
        try:
            reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except PermissionError:
            raise ItemFilesError(f"out/…/{source.name}: cannot be read; check its owner, or give it mode 644") from None
        try:
            writing = self._disk.open(str(target), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            try:
                while piece := os.read(reading, PIECE_BYTES):
                    self._disk.write(writing, piece)
            finally:
                self._disk.close(writing)
        finally:
            os.close(reading)

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

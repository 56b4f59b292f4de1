"""Folders as bytes: what travels to hosts that do not see the job's folder, and back.

Only plain files and folders; links and devices stay where they are.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from agentrun.errors import AgentrunError, UsageError

FOLDER_LIMIT_BYTES = 64 * 1024 * 1024
WORK_LIMIT_BYTES = 256 * 1024 * 1024
NEVER_SENT = frozenset({".git", ".hg", ".venv", "venv", ".agentrun", "__pycache__", "node_modules"})
Stamp = frozenset[tuple[str, int, int, int]]


class TooLarge(AgentrunError):
    """More than may travel."""


def stamp_of(folder: str) -> Stamp:
    """Changes whenever something in the folder does, except for the content of a file rewritten in place within the
    clock's tick."""
    found = set()
    for at, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(at, name)
            try:
                stat = os.lstat(path)
            except FileNotFoundError:
                continue
            found.add((path, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return frozenset(found)


def pack_folder(folder: Path, *, limit: int, skips: Callable[[str], bool] = lambda name: False) -> bytes:
    """An archive of what is in a folder; `skips` is asked about each path in it. Empty if there is no folder."""
    if not folder.is_dir():
        return b""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, name in _files(folder, skips):
            info = archive.gettarinfo(path, name)
            if info.islnk():  # a second name of a file that is in it already
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", os.stat(path).st_size
            if not (info.isfile() or info.isdir()):
                continue
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if out.tell() + info.size > limit:
                raise TooLarge(f"{folder}: holds more than {limit >> 20} MiB")
            if info.isfile():
                with open(path, "rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)
    return out.getvalue()


def _files(folder: Path, skips: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    root = str(folder)
    for at, folders, names in os.walk(root):
        inner = os.path.relpath(at, root)
        folders[:] = sorted(one for one in folders if not skips(os.path.normpath(os.path.join(inner, one))))
        for name in (*folders, *sorted(names)):
            within = os.path.normpath(os.path.join(inner, name))
            if not skips(within):
                yield os.path.join(at, name), within


def unpack_folder(archive: bytes, folder: Path) -> None:
    """Make the folder what the archive says: files that are not in it are removed.

    Each file is replaced whole. After a crash in between, some are as before: as if what changed them had been
    interrupted.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        for info in found:
            # Refuses names that lead out of the folder, links and devices.
            checked = tarfile.data_filter(info, str(folder))
            if not (checked.isfile() or checked.isdir()):
                continue
            kept.add(os.path.normpath(checked.name))
            target = folder / checked.name
            if checked.isdir():
                if target.exists() and not target.is_dir():
                    target.unlink()
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                continue
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name[:100]}.agentrun-new")
            source = found.extractfile(checked)
            assert source is not None
            with open(temporary, "wb") as file:
                shutil.copyfileobj(source, file)
            os.chmod(temporary, (checked.mode or 0o600) & 0o700)
            os.utime(temporary, (checked.mtime, checked.mtime))
            os.replace(temporary, target)
    for path, name in _files(folder, lambda name: False):
        if name in kept:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def pack_job(base: Path, *, leave_out: frozenset[str], only: tuple[str, ...], is_item: Callable[[str], bool]) -> bytes:
    """The job's folder, for hosts that do not see it.

    `leave_out` are paths in it that must not travel: secrets, outputs. `only` are the files and folders to send, if not
    everything. Items travel with their attempts.
    """
    left_out = {os.path.normpath(name) for name in leave_out}
    only = tuple(os.path.normpath(name) for name in only)

    def skips(name: str) -> bool:
        parts = name.split("/")
        if NEVER_SENT.intersection(parts) or name in left_out or is_item(name):
            return True
        return bool(only) and not any(
            name == one or name.startswith(f"{one}/") or one.startswith(f"{name}/") for one in only
        )

    try:
        return pack_folder(base, limit=FOLDER_LIMIT_BYTES, skips=skips)
    except TooLarge as error:
        raise UsageError(
            f"{error.message}, which is too much to send to workers that do not see it; name what they need under "
            f'[engine]: send = ["agent.py"], or put the folder where they see it, under the same path'
        ) from None

"""Folders as bytes: what travels to hosts that do not see the job's folder, and back.

Plain files, folders and symbolic links; sockets, pipes and devices stay where they are. Links travel as they are: what
they point to is another machine's business. Nothing is ever written through one.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import stat as stat_module
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from agentrun.errors import AgentrunError, UsageError
from agentrun.system.disk import open_to_read

FOLDER_LIMIT_BYTES = 64 * 1024 * 1024
WORK_LIMIT_BYTES = 256 * 1024 * 1024
ANY_RUN, ANY_DATE = "\ue000", "\ue001"
"""For the placeholders of an output."""
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
    """An archive of what is in a folder; `skips` is asked about each path in it. Empty if there is no folder.

    A file that vanishes meanwhile is left out. TooLarge, or OSError if something cannot be read.
    """
    if not folder.is_dir():
        return b""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, name in _files(folder, skips):
            try:
                found, content = _entry(path, name, room=limit - out.tell())
            except FileNotFoundError:
                continue
            if found is None:
                raise TooLarge(f"{folder}: holds more than {limit >> 20} MiB")
            if found.isfile() or found.isdir() or found.issym():
                archive.addfile(found, io.BytesIO(content))
    return out.getvalue()


def _entry(path: str, name: str, *, room: int) -> tuple[tarfile.TarInfo | None, bytes]:
    """What the archive says of a path, and its content; None if that does not fit."""
    stat = os.lstat(path)
    info, content = tarfile.TarInfo(name), b""
    info.mode, info.mtime = stat_module.S_IMODE(stat.st_mode), stat.st_mtime
    if stat_module.S_ISDIR(stat.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat_module.S_ISLNK(stat.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif not stat_module.S_ISREG(stat.st_mode):
        info.type = tarfile.FIFOTYPE
    elif stat.st_size > room:
        return None, b""
    else:
        with open_to_read(path) as file:
            content = file.read(room + 1)  # it may grow meanwhile
        if len(content) > room:
            return None, b""
        info.size = len(content)
    return info, content


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
    """Make the folder what the archive says: what is not in it is removed.

    Each file is replaced whole. After a crash in between, some are as before: as if what changed them had been
    interrupted. ValueError if it is no archive, or leads out of the folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept: set[str] = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as found:
            for info in found:
                name = os.path.normpath(info.name)
                if name.startswith(("/", "..")) or not (info.isfile() or info.isdir() or info.issym()):
                    raise ValueError(f"{info.name!r} may not be in it")
                kept.add(name)
                _unpack(found, info, folder, name)
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"it is no archive: {error}") from None
    for path, name in _files(folder, lambda name: False):
        if name not in kept:
            _remove(Path(path))


def _unpack(archive: tarfile.TarFile, info: tarfile.TarInfo, folder: Path, name: str) -> None:
    target = folder / name
    _make_folder(target if info.isdir() else target.parent, folder)
    if info.isdir():
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    temporary = target.with_name(f".agentrun-{secrets.token_hex(8)}")
    if info.issym():
        os.symlink(info.linkname, temporary)
    else:
        source = archive.extractfile(info)
        assert source is not None
        with open(temporary, "xb") as file:
            shutil.copyfileobj(source, file)
        os.chmod(temporary, info.mode & 0o700)
        os.utime(temporary, (info.mtime, info.mtime))
    os.replace(temporary, target)


def _make_folder(path: Path, root: Path) -> None:
    """Whatever is in the way, such as a link that leads elsewhere, is replaced by a folder."""
    if path == root:
        return
    _make_folder(path.parent, root)
    if path.is_symlink() or not path.is_dir():
        _remove(path)
        path.mkdir(mode=0o700)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pack_job(
    base: Path, *, outputs: tuple[Path, ...], secret: Path | None, only: tuple[str, ...], is_item: Callable[[str], bool]
) -> bytes:
    """The job's folder, for hosts that do not see it.

    What the job writes (`outputs`, with `ANY_RUN` and `ANY_DATE`) and its file of secrets stay here. `only` are the
    files and folders to send, if not everything. Items travel with their attempts, and links stay where they are.
    """
    is_output = re.compile("|".join(_names_of_output(base, one) for one in outputs) or "(?!)").fullmatch
    left_out = _identity(secret) if secret is not None else None
    only = tuple(os.path.normpath(name) for name in only)

    def skips(name: str) -> bool:
        path = base / name
        if NEVER_SENT.intersection(name.split("/")) or is_output(name) or is_item(name) or path.is_symlink():
            return True
        if left_out is not None and _identity(path) == left_out:
            return True
        return bool(only) and not any(
            name == one or name.startswith(f"{one}/") or one.startswith(f"{name}/") for one in only
        )

    try:
        return pack_folder(base, limit=FOLDER_LIMIT_BYTES, skips=skips)
    except TooLarge as error:
        raise UsageError(
            f"{error.message}, too much to send to workers that do not see it; list what they need under [engine], "
            f'such as send = ["agent.py", "prompts"], or put the folder where they see it, under the same path'
        ) from None
    except OSError as error:
        raise UsageError(
            f"{error.filename or base}: cannot be sent to workers that do not see it ({error.strerror}); list what "
            f'they need under [engine], such as send = ["agent.py", "prompts"]'
        ) from None


def _names_of_output(base: Path, output: Path) -> str:
    """A pattern for an output in the job's folder, its partial results, its claim and the files of its items."""
    above, name = os.path.split(os.path.relpath(output, base))
    stem, ending = os.path.splitext(name)
    above, stem, ending = (_pattern(one) for one in (os.path.join(above, ""), stem, ending))
    return rf"{above}({stem}{ending}|{stem}\.files|{stem}\.partial{ending}|\.{stem}\.claim)"


def _pattern(text: str) -> str:
    return re.escape(text).replace(ANY_DATE, r"\d{4}-\d\d-\d\d").replace(ANY_RUN, "[A-Za-z0-9-]+")


def _identity(path: Path) -> tuple[int, int] | None:
    """Of the file that a path leads to, by whatever name."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino

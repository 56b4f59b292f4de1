"""Where this user's state folders are, so that `agentrun status --all` finds jobs in any folder.

One small file for each state folder, in the user's own state directory, with nothing but its path. It is no part of
recovery: what cannot be written is not there, and what is read is a place to look at, whose owner and mode are checked
like those of any other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from agentrun.system.disk import open_to_read, temporary_name

FOLDER = Path("agentrun", "places")
PATH_LIMIT_BYTES = 4096


def register(root: Path, environ: Mapping[str, str] | None = None) -> None:
    """Remember a state folder. Never an error: cron may have no home, and a home may be read-only."""
    try:
        _write(_folder(environ), os.fsencode(os.path.abspath(root)))
    except OSError:
        pass


def known_roots(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The state folders that exist, sorted; those that are gone are forgotten."""
    try:
        folder = _folder(environ)
        _refuse_unless_ours(folder)
        names = os.listdir(folder)
    except OSError:
        return []
    return sorted(root for name in names if not name.startswith(".") if (root := _read(folder / name)) is not None)


def _folder(environ: Mapping[str, str] | None) -> Path:
    """FileNotFoundError without a home."""
    environ = os.environ if environ is None else environ
    # As the XDG specification says: a relative path does not count.
    if os.path.isabs(place := environ.get("XDG_STATE_HOME", "")):
        return Path(place) / FOLDER
    if os.path.isabs(home := environ.get("HOME", "")):
        return Path(home, ".local", "state") / FOLDER
    raise FileNotFoundError("there is no home")


def _write(folder: Path, root: bytes) -> None:
    path = folder / blake2b(root, digest_size=8).hexdigest()
    text = root + b"\n"
    if len(text) > PATH_LIMIT_BYTES or path.exists():
        return
    nearest = next(one for one in folder.parents if one.exists())
    # With `sudo` the home may be somebody else's: nothing is made there that they could not remove.
    _refuse_unless_ours(nearest)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_unless_ours(folder)
    temporary = temporary_name(folder, path.name)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
    os.replace(temporary, path)


def _refuse_unless_ours(folder: Path) -> None:
    if os.stat(folder).st_uid != os.geteuid():
        raise PermissionError(f"{folder}: belongs to another user")


def _read(path: Path) -> Path | None:
    """The state folder that a file names; None if there is none, and then the file is removed."""
    try:
        with open_to_read(path) as file:
            root = file.read(PATH_LIMIT_BYTES).removesuffix(b"\n")
        if os.path.isabs(root) and b"\0" not in root and stat.S_ISDIR(os.lstat(root).st_mode):
            return Path(os.fsdecode(root))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return None  # not to be looked at now, perhaps later
    try:
        os.unlink(path)
    except OSError:
        pass
    return None

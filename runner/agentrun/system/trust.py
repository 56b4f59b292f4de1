"""Whose folder is it? The state of a job names code that runs as us, so a folder that others could have written to is
never read, unless the environment allows it.

Only the folder's owner and mode count. Root is trusted, because root can do everything anyway. Nothing in the folder
can make it trusted.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

from agentrun.errors import TrustError, UsageError

TRUST_VARIABLE = "AGENTRUN_TRUST"
"""The paths of trusted folders, separated by `:`; everything below them is trusted, too."""


def check_folder(folder: Path, *, otherwise: str = "use another folder with --state-dir") -> None:
    """Refuse a folder that others could tamper with. An OSError if it cannot be looked at, or does not exist."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{folder}: is not a folder (links are not followed); move it away, or {otherwise}")
    if found.st_uid not in (os.geteuid(), 0):
        what, remedy = f"belongs to another user (uid {found.st_uid}), and may hold anything", otherwise
    elif found.st_mode & 0o022:
        what = f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        remedy = f"fix it with: chmod go-w {quote(str(folder))}"
    else:
        return
    if is_trusted(folder):
        return
    setting = f"{TRUST_VARIABLE}={quote(':'.join([*trusted_paths(), str(folder.absolute())]))}"
    raise TrustError(
        f"{folder}: {what}; {remedy}, or set {setting} in the environment if you trust it", setting=setting
    )


def check_folders(*folders: Path) -> None:
    """Refuse any of these that others could tamper with. What does not exist, or is closed to us, cannot be read."""
    for folder in folders:
        try:
            check_folder(folder)
        except OSError:
            continue


def is_trusted(folder: Path) -> bool:
    """Whether the environment names the folder, or one above it."""
    real = Path(os.path.realpath(folder))
    return any(real.is_relative_to(os.path.realpath(path)) for path in trusted_paths())


def trusted_paths() -> list[str]:
    """The paths that the environment names. A relative one would mean another folder for each working directory, so it
    does not count."""
    return [path for path in os.environ.get(TRUST_VARIABLE, "").split(":") if os.path.isabs(path)]

"""The folder of the results: checked before the first item runs, and made where it is missing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agentrun.errors import JobError
from agentrun.system.disk import Disk, disk_error, sync_folder

_INSTEAD = "choose another output with -o"
_NOT_THERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG)
"""What is wrong with the place, not with the disk."""
_MODE = 0o755


def check_output_folder(folder: Path, output: Path) -> None:
    """JobError unless `folder` can be written, or can be made where it is missing. Changes nothing."""
    above = folder
    while not os.path.lexists(above):
        above = above.parent
    if not above.is_dir():
        raise JobError(f"{output}: {above} is not a folder; {_INSTEAD}")
    if os.access(above, os.W_OK | os.X_OK):
        return
    if above == folder:
        raise JobError(f"{output}: the folder {folder} cannot be written; {_INSTEAD}")
    raise JobError(f"{output}: the folder {folder} cannot be made, because {above} cannot be written; {_INSTEAD}")


def make_output_folder(folder: Path, output: Path, *, base: Path, disk: Disk) -> None:
    """Make `folder` durably, with those above it, where they are missing. `base` is the job's folder."""
    try:
        _make(folder, disk)
        _sync_above(folder, base, disk)
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise JobError(f"{output}: the folder {folder} cannot be made: {error.strerror}; {_INSTEAD}") from None
        raise disk_error(folder, error) from error


def _make(folder: Path, disk: Disk) -> None:
    if folder.is_dir():
        return
    _make(folder.parent, disk)
    try:
        disk.mkdir(str(folder), _MODE)
    except FileExistsError:
        if not folder.is_dir():
            raise


def _sync_above(folder: Path, base: Path, disk: Disk) -> None:
    """Also if it was there: the launch that made it may have been killed before this. What we make is ours, so whatever
    is above a folder of somebody else is not."""
    folder, base = Path(os.path.realpath(folder)), Path(os.path.realpath(base))
    while folder not in (base, folder.parent) and folder.stat().st_uid == os.geteuid():
        folder = folder.parent
        try:
            sync_folder(disk, folder)
        except PermissionError:
            return  # it may be written but not read: nothing more can be done

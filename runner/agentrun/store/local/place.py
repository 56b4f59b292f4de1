"""A job's folder as a place: made, whose it is, emptied."""

from __future__ import annotations

from pathlib import Path

from agentrun.store.local.lock import NAME as LOCK
from agentrun.system.disk import Disk, disk_errors, names_in, replace_file, secure_folder
from agentrun.system.trust import check_folders

FOLDERS = ("runs", "logs", "inbox", "work")
"""What it may hold besides files."""


def check_place(folder: Path) -> None:
    """Refuse a job's folder in which somebody else could have put something."""
    check_folders(folder.parent, folder, *(folder / name for name in FOLDERS))


def empty_place(folder: Path) -> None:
    """Remove everything but the lock."""
    import shutil

    with disk_errors(folder):
        for name in names_in(folder):
            path = folder / name
            if name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def make_place(disk: Disk, folder: Path) -> None:
    """Make the job's folder and the state folder around it, durably; refuse existing ones that others could change."""
    root = folder.parent
    secure_folder(disk, root)
    if not (root / ".gitignore").exists():
        replace_file(disk, root / ".gitignore", [b"*\n"])
    secure_folder(disk, folder)
    check_place(folder)

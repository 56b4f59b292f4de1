"""store.json: where the state of a job is, if that is not the job's folder itself.

It holds an address without a password, so that commands in this folder find the job by its name.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from agentrun.errors import CheckpointError
from agentrun.system.disk import Disk, discard, disk_error, open_to_read, replace_file

NAME = "store.json"


class _Pointer(msgspec.Struct, omit_defaults=True):
    version: int
    store: str
    run_id: str = ""
    """A run that the store has had, since its first commit."""


def read_pointer(folder: Path) -> str | None:
    """The address of the store that has the job's state; None if that is in the folder."""
    found = _read(folder)
    return found.store if found is not None else None


def noted_run(folder: Path, address: str) -> str:
    """A run that this machine knows to have been in the store; empty if it knows of none."""
    found = _read(folder)
    return found.run_id if found is not None and found.store == address else ""


def _read(folder: Path) -> _Pointer | None:
    path = folder / NAME
    try:
        with open_to_read(path) as file:
            found = msgspec.json.decode(file.read(), type=_Pointer)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise disk_error(path, error) from error
    except ValueError:
        raise CheckpointError(f"{path}: is damaged; remove it, and give the store again with --store") from None
    if found.version > 1:
        raise CheckpointError(f"{path}: is of version {found.version}, from a newer agentrun; use that one")
    return found


def drop_pointer(folder: Path) -> None:
    """The state is in the folder itself from now on."""
    if (folder / NAME).exists():
        discard(Disk(), str(folder / NAME))


def write_pointer(folder: Path, address: str, *, run_id: str = "") -> None:
    """Note where the job's state is, and a run that is there; `address` has no password."""
    made = _Pointer(1, address, run_id)
    try:
        if (found := _read(folder)) == made or (found is not None and found.store == address and not run_id):
            return
    except CheckpointError:
        pass
    try:
        replace_file(Disk(), folder / NAME, [msgspec.json.encode(made) + b"\n"])
    except OSError as error:
        raise disk_error(folder / NAME, error) from error

"""The workspace: a local folder for every job, whatever its store."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from agentrun.store.port import Store
from agentrun.system.disk import Disk, replace_file

_TEMPORARY: weakref.WeakKeyDictionary[Store, Path] = weakref.WeakKeyDictionary()


class Workspace:
    """Where a job's logs, spools, items' own folders and socket are on this machine.

    It is the store's own folder; for a store without one, a temporary folder that lives as long as the store object,
    so that the next launch with the same store finds the items' scratch again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        if store.folder is not None:
            self.folder = store.folder
            return
        if store not in _TEMPORARY:
            _TEMPORARY[store] = made = Path(tempfile.mkdtemp(prefix="agentrun-"))
            os.chmod(made, 0o700)  # whatever the umask
            weakref.finalize(store, _remove, made, os.getpid())
        self.folder = _TEMPORARY[store]

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def spool(self, name: str) -> Path:
        """A local file with the items that the store keeps under `name`."""
        path = self.folder / name
        if not path.exists() and (pieces := self._store.fetch(name)) is not None:
            replace_file(Disk(), path, pieces)
        return path


def _remove(folder: Path, made_by: int) -> None:
    # Not in a child that an agent forked: the folder is still its parent's.
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)

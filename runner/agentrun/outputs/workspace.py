"""The workspace: a local folder for every job, whatever its store."""

from __future__ import annotations

import weakref
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrun.store.port import Store
from agentrun.system.disk import Disk, replace_file

_TEMPORARY: weakref.WeakKeyDictionary[Store, TemporaryDirectory[str]] = weakref.WeakKeyDictionary()


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
            _TEMPORARY[store] = TemporaryDirectory(prefix="agentrun-", ignore_cleanup_errors=True)
        self.folder = Path(_TEMPORARY[store].name)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def spool(self, name: str) -> Path:
        """A local file with the items that the store keeps under `name`."""
        path = self.folder / name
        if not path.exists() and (pieces := self._store.fetch(name)) is not None:
            replace_file(Disk(), path, pieces)
        return path

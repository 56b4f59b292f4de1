"""The jobs in a state folder: one folder each."""

from __future__ import annotations

import os
from pathlib import Path

from agentrun.errors import UsageError
from agentrun.job.kept import JOB_JSON
from agentrun.store.folder.runs import FOLDER as RUNS
from agentrun.store.folder.state import NAME as STATE
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.pointer import NAME as POINTER
from agentrun.store.port import Catalogue
from agentrun.system.trust import check_folders


class FolderCatalogue(Catalogue):
    """The jobs below `root`, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        check_folders(self.root)
        try:
            names = sorted(os.listdir(self.root))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UsageError(f"{self.root}: the state folder cannot be read: {error.strerror}") from None
        return [name for name in names if not name.startswith(".") and self._is_job(self.root / name)]

    def store(self, name: str) -> FolderStore:
        return FolderStore(self.root / name)

    def _is_job(self, folder: Path) -> bool:
        try:
            return any((folder / name).exists() for name in (JOB_JSON, STATE, RUNS, POINTER))
        except PermissionError:
            return True

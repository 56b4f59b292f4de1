"""The folder store for the tests that know its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import FolderLease


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".agentrun" / "triage"


@pytest.fixture
def leases() -> Iterator[list[FolderLease]]:
    """The leases of the launches so far."""
    leases: list[FolderLease] = []
    yield leases
    for lease in leases:
        lease.release()


@pytest.fixture
def open_folder(folder: Path, leases: list[FolderLease]) -> Callable[..., FolderStore]:
    """A folder store; each call gives back the lock of the one before, as the end of a launch does."""

    def open_store(*, load: bool = True, accept_edits: bool = False, **options: Any) -> FolderStore:
        for lease in leases:
            lease.release()
        store = FolderStore(folder, **options)
        leases.append(store.lock(wait_seconds=0))
        if load:
            store.load(accept_edits=accept_edits)
        return store

    return open_store

"""Stores to test: add yours to `again`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Store


@pytest.fixture(params=["folder", "folder with a small redo part", "memory"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Gives the store as the next launch would open it; all of them are released at the end."""
    opened: list[Store] = []
    memory = MemoryStore()

    def open_store() -> Store:
        if request.param == "memory":
            return memory
        limit = 200 if "small" in request.param else 16 * 1024
        opened.append(FolderStore(tmp_path / ".agentrun" / "triage", redo_limit_bytes=limit))
        return opened[-1]

    yield open_store
    for store in (memory, *opened):
        store.release()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".agentrun" / "triage"


@pytest.fixture
def open_folder(folder: Path) -> Iterator[Callable[..., FolderStore]]:
    """A folder store; each call gives back the lock of the one before, as the end of a launch does."""
    opened: list[FolderStore] = []

    def open_store(*, load: bool = True, accept_edits: bool = False, **options: Any) -> FolderStore:
        for one in opened:
            one.release()
        store = FolderStore(folder, **options)
        opened.append(store)
        store.lock(wait_seconds=0)
        if load:
            store.load(accept_edits=accept_edits)
        return store

    yield open_store
    for one in opened:
        one.release()

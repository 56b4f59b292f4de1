"""The launches of one test: how the contract's tests open, lock and release the store under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrun.store.port import Lease, Store


class Launches:
    """Opens one store again and again, as one process after the other would."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._lease: Lease | None = None

    def next(self) -> Store:
        """The store with the lock held and its run loaded. The launch before gives the lock back first."""
        self.end()
        store = self._open()
        self._lease = store.lock(wait_seconds=0)
        store.load()
        return store

    def look(self) -> Store:
        """The store as somebody opens it who does not have the lock."""
        return self._open()

    @property
    def lease(self) -> Lease:
        """The lock of the current launch."""
        assert self._lease is not None
        return self._lease

    def end(self) -> None:
        """Give the lock back, as the end of a launch does."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None


class OnOneStore:
    """What the parts of the contract have in common."""

    def make_store(self, tmp_path: Path) -> Store:
        """Open the store under test: the same one at each call within a test, and empty at first."""
        raise NotImplementedError("say how to open the store: def make_store(self, tmp_path): ...")

    @pytest.fixture
    def launches(self, tmp_path: Path) -> Iterator[Launches]:
        launches = Launches(lambda: self.make_store(tmp_path))
        yield launches
        launches.end()

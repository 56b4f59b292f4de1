"""What every store must do, on the stores that are not a folder and need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.catalogue import KeyedCatalogue
from agentrun.store.keyed.store import Timing
from agentrun.store.port import Catalogue, Store
from agentrun.testing import CatalogueContract, StoreContract


class OnSqlite:
    """A new connection at each opening, as another process has; closed at the test's end."""

    @pytest.fixture(autouse=True)
    def places(self) -> Iterator[None]:
        self.opened: list[SqlitePlace] = []
        yield
        for place in self.opened:
            place.close()

    def open(self, tmp_path: Path) -> KeyedCatalogue:
        place = SqlitePlace(tmp_path / "jobs.db")
        self.opened.append(place)
        return KeyedCatalogue(lambda: place, tmp_path / ".agentrun", timing=Timing(beats=False))


class TestSqlite(OnSqlite, StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return self.open(tmp_path).store("triage")


class TestSqliteCatalogue(OnSqlite, CatalogueContract):
    def make_catalogue(self, tmp_path: Path) -> Catalogue:
        return self.open(tmp_path)

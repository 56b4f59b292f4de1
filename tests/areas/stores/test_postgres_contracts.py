"""What every home, place and store must do, on a real PostgreSQL; directly, and through a pooler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.store.homes.postgres.place import PostgresPlace
from agentrun.store.keyed.catalogue import KeyedCatalogue
from agentrun.store.keyed.home import Home, Place
from agentrun.store.keyed.store import Timing
from agentrun.store.port import Catalogue, Store
from agentrun.testing import CatalogueContract, FenceContract, HomeContract, PlaceContract, StoreContract
from stores.pgbouncer import serve_pgbouncer
from stores.postgres_server import Database, PostgresServer


class OnPostgres:
    """Opens places on an empty database, each with a connection of its own."""

    _database: Database
    _port: int | None = None

    @pytest.fixture(autouse=True)
    def on_a_database(self, postgres: Database) -> None:
        self._database = postgres

    def make_place(self, tmp_path: Path) -> Place:
        return self._open()

    def make_home(self, tmp_path: Path) -> Home:
        return self._open().home("triage")

    def make_catalogue(self, tmp_path: Path) -> Catalogue:
        return self._catalogue(tmp_path)

    def make_store(self, tmp_path: Path) -> Store:
        return self._catalogue(tmp_path).store("triage")

    def _open(self) -> PostgresPlace:
        return self._database.place(port=self._port)

    def _catalogue(self, tmp_path: Path) -> KeyedCatalogue:
        place = self._open()
        return KeyedCatalogue(lambda: place, tmp_path / ".agentrun", timing=Timing(beats=False))


class TestStore(OnPostgres, StoreContract): ...


class TestCatalogue(OnPostgres, CatalogueContract): ...


class TestHome(OnPostgres, HomeContract): ...


class TestFences(OnPostgres, FenceContract): ...


class TestPlace(OnPostgres, PlaceContract): ...


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[int]:
    with serve_pgbouncer(postgres_server) as port:
        yield port


class OnPooler(OnPostgres):
    @pytest.fixture(autouse=True)
    def through_a_pooler(self, pooler: int, on_a_database: None) -> None:
        # Sessions of the pool must not be relied on, whatever state they are in.
        self._database.set("synchronous_commit", "off")
        self._port = pooler


class TestHomeThroughPooler(OnPooler, HomeContract): ...


class TestFencesThroughPooler(OnPooler, FenceContract): ...


class TestCatalogueThroughPooler(OnPooler, CatalogueContract): ...

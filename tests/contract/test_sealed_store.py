"""What every store, home and place must do, with a seal around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agentrun.checkpoint.sealing import Keyring
from agentrun.store.homes.sqlite import SqlitePlace
from agentrun.store.keyed.catalogue import KeyedCatalogue
from agentrun.store.keyed.home import Home, Place
from agentrun.store.keyed.sealed import SealedPlace
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.keyed.wrapped import WrappedHome
from agentrun.store.port import Catalogue, Store
from agentrun.testing import CatalogueContract, StoreContract
from agentrun.testing.fences import FenceContract
from agentrun.testing.home_runs import HomeRunContract
from agentrun.testing.home_sides import HomeSideContract
from agentrun.testing.homes import HomeLeaseContract
from agentrun.testing.places import PlaceContract
from needs import require_module

require_module("cryptography", extra="sealed")
NEW, OLD = bytes(range(32)), bytes(range(32, 64))


class Sealed:
    """Jobs in a SQLite file, sealed."""

    keys: Sequence[bytes] = (NEW,)

    def make_place(self, tmp_path: Path) -> Place:
        return SealedPlace(SqlitePlace(tmp_path / "jobs.db"), Keyring(self.keys) if self.keys else None)

    def make_home(self, tmp_path: Path) -> Home:
        return self.make_place(tmp_path).home("triage")

    def make_store(self, tmp_path: Path) -> Store:
        home, folder = self.make_home(tmp_path), tmp_path / ".agentrun" / "triage"
        return KeyedStore(home, "triage", folder, timing=Timing(beats=False))


class TestSealedStore(Sealed, StoreContract):
    pass


class OpenSizes(WrappedHome):
    """Sizes before sealing, which the contract compares: a sealed home knows those of what is stored."""

    def size(self, journal: str) -> int:
        return sum(len(line) + 1 for _, line in self.scan(journal, 0, 1 << 62))


class TestSealedHome(Sealed, HomeLeaseContract, HomeRunContract, HomeSideContract):
    def make_home(self, tmp_path: Path) -> Home:
        return OpenSizes(super().make_home(tmp_path))


class TestSealedFences(Sealed, FenceContract):
    pass


class TestSealedPlace(Sealed, PlaceContract):
    pass


class TestSealedCatalogue(Sealed, CatalogueContract):
    def make_catalogue(self, tmp_path: Path) -> Catalogue:
        root = tmp_path / ".agentrun"
        return KeyedCatalogue(lambda: self.make_place(tmp_path), root, timing=Timing(beats=False))


class TestStoreSealedByTurns(Sealed, StoreContract):
    """Each launch seals with another key than the one before, and opens with both."""

    keys = (NEW, OLD)

    def make_place(self, tmp_path: Path) -> Place:
        self.keys = self.keys[::-1]
        return super().make_place(tmp_path)


class TestStoreWithoutAKey(Sealed, StoreContract):
    keys = ()


class TestHomeWithoutAKey(Sealed, HomeLeaseContract, HomeRunContract, HomeSideContract):
    keys = ()


class TestSealedObjects(Sealed, StoreContract):
    @pytest.fixture(autouse=True)
    def bucket(self) -> None:
        require_module("obstore", extra="objects")
        from obstore.store import MemoryStore

        self.store = MemoryStore()

    def make_place(self, tmp_path: Path) -> Place:
        from agentrun.store.homes.objects.place import ObjectsPlace

        place = ObjectsPlace(self.store, "team/jobs", shown="s3://bucket/team/jobs", margin_seconds=0)
        return SealedPlace(place, Keyring(self.keys))

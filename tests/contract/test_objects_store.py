"""What every store must do, on object storage in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from needs import require_module

require_module("obstore", extra="objects")

from obstore.store import MemoryStore  # noqa: E402

from agentrun.store.homes.objects.place import ObjectsPlace  # noqa: E402
from agentrun.store.keyed.home import Home, Place  # noqa: E402
from agentrun.store.keyed.store import KeyedStore, Timing  # noqa: E402
from agentrun.store.port import Store  # noqa: E402
from agentrun.testing import StoreContract  # noqa: E402
from agentrun.testing.fences import FenceContract  # noqa: E402
from agentrun.testing.home_runs import HomeRunContract  # noqa: E402
from agentrun.testing.home_sides import HomeSideContract  # noqa: E402
from agentrun.testing.homes import HomeLeaseContract  # noqa: E402
from agentrun.testing.places import PlaceContract  # noqa: E402


class InMemory:
    """The objects are there as long as the test; the time they say has no margin."""

    @pytest.fixture(autouse=True)
    def bucket(self) -> None:
        self.store = MemoryStore()

    def make_place(self, tmp_path: Path) -> Place:
        return ObjectsPlace(self.store, "team/jobs", shown="s3://bucket/team/jobs", margin_seconds=0)

    def make_home(self, tmp_path: Path) -> Home:
        return self.make_place(tmp_path).home("triage")

    def make_store(self, tmp_path: Path) -> Store:
        home, folder = self.make_home(tmp_path), tmp_path / ".agentrun" / "triage"
        return KeyedStore(home, "triage", folder, timing=Timing(beats=False))


class TestObjectsStore(InMemory, StoreContract):
    pass


class TestObjectsHome(InMemory, HomeLeaseContract, HomeRunContract, HomeSideContract):
    pass


class TestObjectsFences(InMemory, FenceContract):
    pass


class TestObjectsPlace(InMemory, PlaceContract):
    pass

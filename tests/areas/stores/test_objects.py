"""What every store must do, on object storage over real HTTP: S3 as moto speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import require_module

require_module("obstore", extra="objects")
require_module("moto", "flask", extra="dev")

from agentrun.store.keyed.home import Home, Place  # noqa: E402
from agentrun.store.keyed.store import KeyedStore, Timing  # noqa: E402
from agentrun.store.port import Store  # noqa: E402
from agentrun.testing import StoreContract  # noqa: E402
from agentrun.testing.fences import FenceContract  # noqa: E402
from agentrun.testing.home_runs import HomeRunContract  # noqa: E402
from agentrun.testing.home_sides import HomeSideContract  # noqa: E402
from agentrun.testing.homes import HomeLeaseContract  # noqa: E402
from agentrun.testing.places import PlaceContract  # noqa: E402
from stores.moto_server import CREDENTIALS, MotoServer, serve_moto  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with serve_moto() as one:
        yield one


class OnMoto:
    """Each test has a prefix of its own, and each place a client of its own."""

    margin_seconds = 4.0
    """Two that are added, and the parts of a second that the service does not tell."""

    @pytest.fixture(autouse=True)
    def bucket(self, server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)

    def make_place(self, tmp_path: Path) -> Place:
        return self.server.place(f"{tmp_path.parent.name}/{tmp_path.name}")

    def make_home(self, tmp_path: Path) -> Home:
        return self.make_place(tmp_path).home("triage")

    def make_store(self, tmp_path: Path) -> Store:
        home, folder = self.make_home(tmp_path), tmp_path / ".agentrun" / "triage"
        return KeyedStore(home, "triage", folder, timing=Timing(beats=False))


class TestObjectsStore(OnMoto, StoreContract):
    pass


class TestObjectsHome(OnMoto, HomeLeaseContract, HomeRunContract, HomeSideContract):
    pass


class TestObjectsFences(OnMoto, FenceContract):
    pass


class TestObjectsPlace(OnMoto, PlaceContract):
    pass

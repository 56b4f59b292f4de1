"""What every home, place and store must do, on a real Redis server and in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.store.homes.redis.place import RedisPlace
from agentrun.store.keyed.home import Home, Place
from agentrun.store.keyed.store import KeyedStore, Timing
from agentrun.store.port import Store
from agentrun.testing import FenceContract, HomeContract, PlaceContract, StoreContract
from agentrun.testing.homes import fill
from stores.redis_server import DURABLE, TestServer, serve_redis
from waiting import eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    with serve_redis(tmp_path_factory.mktemp("redis")) as one:
        yield one


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A cluster of one: it refuses a script that touches keys of several slots."""
    with serve_redis(tmp_path_factory.mktemp("redis"), {**DURABLE, "cluster-enabled": "yes"}) as one:
        one.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in one.ask("CLUSTER", "INFO"), "the cluster is up")
        yield one


class OnRedis:
    """Opens places, each with a connection of its own."""

    _server: TestServer
    _opened: list[RedisPlace]

    @pytest.fixture(autouse=True)
    def on_a_server(self, server: TestServer) -> Iterator[None]:
        yield from self._on(server)

    def _on(self, server: TestServer) -> Iterator[None]:
        self._server, self._opened = server, []
        server.ask("FLUSHALL")
        yield
        for place in self._opened:
            place.close()

    def make_place(self, tmp_path: Path) -> Place:
        self._opened.append(self._server.place())
        return self._opened[-1]

    def make_home(self, tmp_path: Path) -> Home:
        return self.make_place(tmp_path).home("triage")

    def make_store(self, tmp_path: Path) -> Store:
        folder = tmp_path / ".agentrun" / "triage"
        return KeyedStore(self.make_home(tmp_path), "triage", folder, timing=Timing(beats=False))


class InCluster(OnRedis):
    @pytest.fixture(autouse=True)
    def on_a_server(self, node: TestServer) -> Iterator[None]:
        yield from self._on(node)


class TestStore(OnRedis, StoreContract):
    pass


class TestHome(OnRedis, HomeContract):
    pass


class TestFences(OnRedis, FenceContract):
    pass


class TestPlace(OnRedis, PlaceContract):
    pass


class TestHomeInACluster(InCluster, HomeContract):
    pass


class TestPlaceInACluster(InCluster, PlaceContract):
    @pytest.mark.parametrize("job", ["}a{b", "{", "}", "{}", "a}:b"])
    def test_the_keys_of_a_job_are_in_one_slot_whatever_its_name(self, tmp_path: Path, job: str) -> None:
        place = self.make_place(tmp_path)
        fill(place.home(job))
        assert place.names() == [job]

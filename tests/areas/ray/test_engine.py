"""The engine itself: what it says of nodes, of resources that nobody offers, and of the way to them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentrun.executors.cluster.ray_engine import RayEngine
from agentrun.job.engine import EngineSpec
from cluster.network import Network, finish

ASK = """
import asyncio, json
from agentrun.executors.cluster.fence import facts
from agentrun.executors.cluster.port import HostSpec
from agentrun.executors.cluster.ray_engine import RayEngine
from agentrun.job.engine import EngineSpec

def missing(): ...
missing.__module__ = "agentrun_of_another_machine"

async def wait_for_slot(engine):
    async for tube in engine.tubes(1, HostSpec("0123456789abcdef", 5.0), lambda: None):
        return tube.where

async def ask():
    engine = RayEngine(EngineSpec(on="ray", kind="ray", resources={"unicorn": 1.0}), concurrency=2)
    try:
        await engine.connect()
        [there], [absent] = (await engine.everywhere(facts)).values(), (await engine.everywhere(missing)).values()
        slot = asyncio.ensure_future(wait_for_slot(engine))
        await asyncio.sleep(3)
        found = {
            "place": there["place"] == facts()["place"],
            "absent": [type(absent).__name__, str(absent)],
            "has_slot": slot.done(),
            "has": await engine.describe(),
        }
        engine._process.kill()
        try:
            await engine.describe()
        except ConnectionError as error:
            found["then"] = str(error)
        slot.cancel()
    finally:
        await engine.close()
    print(json.dumps(found))

asyncio.run(ask())
"""


def test_what_it_says_of_its_nodes_and_of_its_own_end(network: Network, tmp_path: Path) -> None:
    found = json.loads(finish(network.start(sys.executable, "-c", ASK, cwd=tmp_path)))
    assert found["place"]
    assert found["absent"] == ["ModuleNotFoundError", "No module named 'agentrun_of_another_machine'"]
    assert not found["has_slot"] and found["has"] == "it has 1 nodes with 2 CPUs, of which 2 are free"
    assert found["then"].startswith("its driver has ended")
    assert list(network.tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "tls", "is_told"),
    [("127.0.0.1:6379", "", False), ("larch:6379", "", True), ("larch:6379", "1", False), ("", "", False)],
)
def test_secrets_without_tls_are_told_where_they_leave_this_machine(
    address: str, tls: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USE_TLS", tls)
    engine = RayEngine(EngineSpec(on=f"ray:{address}", kind="ray", address=address), concurrency=2)
    assert ("without TLS" in engine.caution(has_secrets=True)) is is_told
    assert engine.caution(has_secrets=False) == ""

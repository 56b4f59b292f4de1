"""In a Ray worker process: the actor that holds a slot, and the host beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import ray

from agentrun.executors.cluster.relay import Relay

PIECE_BYTES = 64 * 1024
"""Ray keeps larger arguments and results in its object store, which may put them on a disk."""
_OF_RAY = (
    "PYTHONBREAKPOINT",
    "RAY_CLIENT_MODE",
    "RAY_JOB_ID",
    "RAY_LD_PRELOAD_ON_WORKERS",
    "RAY_RAYLET_PID",
    "SPT_NOENV",
)
"""What Ray sets for its own processes. An agent is none of them: with the first, a forgotten `breakpoint()` would wait
for a debugger for ever."""


class Slot:
    """An actor. Its process belongs to it alone, so a slot always has a host to itself."""

    def __init__(self) -> None:
        self._relay: Relay
        self._rest = b""

    async def open(self, spec: Mapping[str, Any]) -> str:
        """Start the host, without the variables that `spec` hides from it; returns where that is."""
        for name in (*_OF_RAY, *spec["hidden"]):
            os.environ.pop(name, None)
        self._relay = Relay(spec)
        await self._relay.open()
        return f"{ray.util.get_node_ip_address()} pid {os.getpid()}"

    async def send(self, piece: bytes) -> None:
        await self._relay.send(piece)

    async def receive(self) -> bytes:
        """The next bytes of the host; empty when nothing of it is alive."""
        found = self._rest or await self._relay.receive()
        piece, self._rest = found[:PIECE_BYTES], found[PIECE_BYTES:]
        return piece

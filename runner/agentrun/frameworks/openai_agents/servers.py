"""MCP servers of an agent that agentrun was given as it is: nobody else could connect them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from weakref import WeakKeyDictionary

from agents.mcp import MCPServer


class Servers:
    """Connects each server when it is first needed, once for the event loop; it is closed when the loop ends."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Kept]] = WeakKeyDictionary()

    async def connect(self, servers: Iterable[MCPServer]) -> None:
        """Return when all of them are connected; raises what their `connect` raised."""
        kept = self._kept.setdefault(asyncio.get_running_loop(), {})
        for server in servers:
            if id(server) not in kept or kept[id(server)].has_ended:
                if getattr(server, "session", None) is not None:
                    continue  # by somebody else, who also closes it
                kept[id(server)] = _Kept(server)
            await asyncio.shield(kept[id(server)].connected)


class _Kept:
    """One connection. It is opened and closed in one task, as its cancel scopes must be."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep(), name=f"MCP server {server.name}")

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    async def _keep(self) -> None:
        try:
            await self._server.connect()  # type: ignore[no-untyped-call]
        except Exception as error:
            self.connected.set_exception(error)
            self.connected.exception()  # retrieved, even if nobody waits for it any more
            return
        self.connected.set_result(None)
        try:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        finally:
            await self._server.cleanup()  # type: ignore[no-untyped-call]

"""A process that the runner talks to: what comes from it is waited for, until it has ended."""

from __future__ import annotations

import asyncio

from agentrun.executors.child import Child


class Peer(asyncio.Protocol):
    """The runner's end. What is said, and how, is for those who make one of this."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.is_spent = False
        """It must not be given another item."""
        self._data = bytearray()
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None
        self._watching = asyncio.ensure_future(self._watch())

    async def end(self) -> None:
        """End it with its whole tree."""
        self.is_spent = True
        try:
            await self.child.end()
        finally:
            self._watching.cancel()
            self._hang_up()

    def _hang_up(self) -> None:
        raise NotImplementedError

    async def _more(self) -> None:
        """Return when something has come; EOFError when nothing will."""
        if self._ended:
            raise EOFError
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    async def _watch(self) -> None:
        await self.child.exited()
        # What it sent last may still be on its way; what it started may keep the connection open for ever.
        await asyncio.sleep(0.05)
        self._end_input()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_input()

    def _end_input(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

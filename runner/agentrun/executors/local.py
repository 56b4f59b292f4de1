"""The agent end of an attempt in the runner's own process, on the loop or in a thread."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentrun.agents.attempt import Channel
from agentrun.agents.messages import Message, Reply
from agentrun.executors.prints import LogSink


class LocalEnd(LogSink):
    """It is also the attempt's log. `close` is called on the loop, and so is the channel: nothing passes after it."""

    __slots__ = ("_channel", "_loop")

    def __init__(self, log_path: Path, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(log_path)
        self._channel: Channel | None = channel
        self._loop = loop

    def log(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        self._channel = None
        super().close()

    async def _call(self, message: Message) -> Reply:
        if self._channel is None:
            raise RuntimeError("this attempt is over")
        return await self._channel(message)

    def _call_from_thread(self, message: Message) -> Reply:
        return asyncio.run_coroutine_threadsafe(self._call(message), self._loop).result()

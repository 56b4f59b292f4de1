"""The agent end of an attempt in the runner's own process, on the loop or in a thread."""

from __future__ import annotations

import asyncio

from agentrun.agents.attempt import Channel
from agentrun.agents.messages import Message, Reply
from agentrun.executors.prints import LogSink


class LocalEnd(LogSink):
    """It is also the attempt's log. `close` is called on the loop, and so is the channel: nothing passes after it.

    Those who make one set `channel` and `loop`.
    """

    __slots__ = ("channel", "loop")

    channel: Channel
    loop: asyncio.AbstractEventLoop

    def log(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace"))

    async def _call(self, message: Message) -> Reply:
        if not self.is_open:
            raise RuntimeError("this attempt is over")
        return await self.channel(message)

    def _call_from_thread(self, message: Message) -> Reply:
        return asyncio.run_coroutine_threadsafe(self._call(message), self.loop).result()

"""The agent end of an attempt in the runner's own process, on the loop or in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import THREAD_TIMEOUT, Failure
from agentrun.agents.messages import Message, Reply
from agentrun.executors.prints import LogSink


def is_on_loop() -> bool:
    """Whether the caller runs on an event loop, and so must not wait without awaiting."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def wait_for_earlier(attempt: Attempt, earlier: Collection[asyncio.Future[Any]]) -> Outcome | None:
    """Wait for earlier attempts of the same item that were cancelled and did not end, so that there are never two.

    A launch that continues after its lease ran out begins such an item again. The outcome if the wait takes longer than
    an attempt may; otherwise None.
    """
    if not earlier:
        return None
    _, left = await asyncio.wait(earlier, timeout=attempt.timeout_seconds)
    if not left:
        return None
    message = f"an earlier attempt did not end when it was cancelled, nor in {attempt.timeout_seconds:g} s after that"
    return Outcome("failed", failure=Failure("timeout", message, code=THREAD_TIMEOUT))


class LocalEnd(LogSink):
    """It is also the attempt's log. `close` is called on the loop, and so is the channel: nothing passes after it.

    Messages arrive in the order in which they are sent: each is a task of the loop, and tasks begin in the order in
    which they are made. A message gets its number when its task begins: one that is cancelled before that has none, and
    one from another thread has its place in the order of arrival. Those who make an end set `attempt`, `channel` and
    `loop`.
    """

    __slots__ = ("_said", "attempt", "channel", "loop")

    attempt: Attempt
    channel: Channel
    loop: asyncio.AbstractEventLoop
    _said: int

    def log(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace"))

    async def _deliver(self, message: Message) -> Reply:
        if not self.is_open:
            raise RuntimeError("this attempt is over")
        self._said += 1
        message.address(self.attempt.id, self._said)
        return await self.channel(message)

    def _call_from_thread(self, message: Message) -> Reply:
        return asyncio.run_coroutine_threadsafe(self._deliver(message), self.loop).result()

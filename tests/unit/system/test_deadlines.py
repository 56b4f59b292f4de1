"""A deadline counts only when everything that has arrived is read; one that fires late starts once more."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from agentrun.executors.loop import Deadlines
from agentrun.system.deadlines import LATE_SECONDS, Deadline, within
from waiting import PATIENCE_SECONDS

Guarded = Callable[[float, Awaitable[str]], Awaitable[str]]


async def by_within(seconds: float, answer: Awaitable[str]) -> str:
    try:
        async with within(seconds) as deadline:
            return await answer
    except TimeoutError:
        assert deadline.has_expired
        return "too late"


def cancel(what: asyncio.Future[str]) -> None:
    what.cancel()


async def by_deadline(seconds: float, answer: Awaitable[str]) -> str:
    answered = asyncio.ensure_future(answer)
    deadline = Deadline(seconds, lambda: cancel(answered))
    try:
        return await answered
    except asyncio.CancelledError:
        return "too late"
    finally:
        deadline.close()


async def by_deadlines(seconds: float, answer: Awaitable[str]) -> str:
    answered = asyncio.ensure_future(answer)
    deadlines: Deadlines[asyncio.Future[str]] = Deadlines(seconds, cancel)
    deadlines.add(answered)
    try:
        return await answered
    except asyncio.CancelledError:
        return "too late"
    finally:
        deadlines.remove(answered)


ways = pytest.mark.parametrize("guarded", [by_within, by_deadline, by_deadlines])


async def read(connection: socket.socket, *, size: int, turns: int = 0) -> str:
    """What lies in the connection, and then some turns of the loop."""
    loop = asyncio.get_running_loop()
    got = 0
    while got < size:
        got += len(await loop.sock_recv(connection, 65536))
    for _ in range(turns):
        await asyncio.sleep(0)
    return "in time"


@ways
@pytest.mark.parametrize("held_up_seconds", [0.1, LATE_SECONDS + 0.2])
def test_an_answer_that_arrived_while_the_process_was_frozen_counts(guarded: Guarded, held_up_seconds: float) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            asyncio.get_running_loop().call_soon(time.sleep, held_up_seconds)
            theirs.sendall(b"x" * 100_000)
            assert await guarded(0.05, read(ours, size=100_000, turns=20)) == "in time"

    asyncio.run(main())


@ways
def test_what_does_not_arrive_is_too_late_also_after_a_freeze(guarded: Guarded) -> None:
    async def never() -> str:
        await asyncio.sleep(PATIENCE_SECONDS)
        return "in time"

    async def main() -> None:
        assert await guarded(0.01, never()) == "too late"
        asyncio.get_running_loop().call_soon(time.sleep, LATE_SECONDS + 0.2)
        assert await guarded(0.01, never()) == "too late"

    asyncio.run(main())


def test_a_deadline_can_be_restarted_and_taken_away() -> None:
    async def main() -> None:
        expired = asyncio.Event()
        deadline = Deadline(0.01, expired.set)
        deadline.restart(None)
        await asyncio.sleep(0.05)
        assert not expired.is_set()
        deadline.restart(0.01)
        await expired.wait()

    asyncio.run(main())

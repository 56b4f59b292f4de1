"""Items that have used more than they may: their attempts are cancelled, and no other is made."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agentrun.agents.attempt import Outcome
from agentrun.agents.failure import ITEM_BUDGET, Failure, judge
from agentrun.checkpoint.record import Try
from agentrun.runs.units import Ended
from agentrun.values.clock import now_seconds


def over_budget(why: str) -> Failure:
    """The item's own failure, which is not retried."""
    return Failure("output", why, code=ITEM_BUDGET)


def refused(why: str, *, launch: int, number: int) -> Ended:
    """How an item ends that used too much in earlier launches: without an attempt, in the place of this one."""
    failure, tried = over_budget(why), Try(launch=launch, number=number, at=now_seconds(), seconds=0.0, cause=why)
    return Ended("failed", failure=failure, judgement=judge(failure), tries=[tried])


async def run_capped(running: Coroutine[Any, Any, Outcome], is_over: asyncio.Event) -> Outcome:
    """The outcome of the attempt. Once `is_over` is set, it has failed, whatever it returns."""
    attempt = asyncio.ensure_future(running)
    over = asyncio.ensure_future(is_over.wait())
    try:
        await asyncio.wait({attempt, over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.cancel()
        if not attempt.done():
            attempt.cancel()
            # Nothing of it is alive when its item is settled, or goes back.
            await asyncio.wait({attempt})
    if not is_over.is_set():
        return attempt.result()
    if not attempt.cancelled():
        attempt.exception()  # retrieved, so that asyncio does not report it
    return Outcome("failed")

"""Waiting for a condition. The limit only guards against hangs: it is so long that no busy neighbour can use it up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_SECONDS = float(os.environ.get("AGENTRUN_TEST_PATIENCE_SECONDS", "120"))
"""The gate sets less: of a seeded bug it is known that some condition never comes."""
PAUSE_SECONDS = 0.002


def eventually(condition: Callable[[], Any], what: str, *, alive: subprocess.Popen[Any] | None = None) -> None:
    """Wait until the condition holds; `alive` must live until then."""
    for _ in _looks(condition, what):
        assert alive is None or alive.poll() is None, f"it ended with {alive.returncode} before this happened: {what}"
        time.sleep(PAUSE_SECONDS)


async def eventually_on_loop(condition: Callable[[], Any], what: str) -> None:
    for _ in _looks(condition, what):
        await asyncio.sleep(PAUSE_SECONDS)


def happens_before(
    is_over: Callable[[], Any], condition: Callable[[], Any], what: str, *, pause_seconds: float = PAUSE_SECONDS
) -> bool:
    """Wait until the condition holds, or it is over; whether the condition came first."""
    for _ in _looks(condition, what):
        if is_over():
            return False
        time.sleep(pause_seconds)
    return True


def happens_before_exit(process: subprocess.Popen[Any], condition: Callable[[], Any], what: str) -> bool:
    return happens_before(lambda: process.poll() is not None, condition, what)


def _looks(condition: Callable[[], Any], what: str) -> Iterator[None]:
    """One for each time that the condition did not hold."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"this did not happen within {PATIENCE_SECONDS:g} s: {what}"
        yield

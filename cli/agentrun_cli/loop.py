"""The loop of a launch, run to an end that no agent can hold up."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 1.0
_FIRST_OF_SIGNALS = 129

_held_up = False


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, but a task that swallows its cancellation is given up: the launch has ended without it."""
    import asyncio

    global _held_up
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_SECONDS))
        if all(task.done() for task in left):
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        else:
            _held_up = True


def leave(code: int) -> NoReturn:
    """Exit; at once where a task was given up, or where a thread of an agent's would outlive a stop."""
    threads = any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread())
    if _held_up or (code >= _FIRST_OF_SIGNALS and threads):
        os._exit(code)
    sys.exit(code)

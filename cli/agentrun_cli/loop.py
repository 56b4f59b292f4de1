"""The loop of a launch, run to an end that no agent can hold up."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 1.0
SWITCH_SECONDS = 0.0001
"""How long a busy loop keeps the thread that commits from going on between two calls of the disk. Python's 5 ms would
be longer than the commit itself, so that agents and disk would take turns and not work side by side."""
GARBAGE_AFTER = 5_000
"""A run makes and drops some fifty objects an item, hardly any of them in cycles: to look for those after every 700,
as Python does, takes a twelfth of its time."""
_FIRST_OF_SIGNALS = 129

_held_up = False


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, but a task that swallows its cancellation is given up: the launch has ended without it."""
    import asyncio

    global _held_up
    loop = asyncio.new_event_loop()
    _tune()
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


def _tune() -> None:
    """Of the interpreter, which is the command's own."""
    import gc

    sys.setswitchinterval(SWITCH_SECONDS)
    # What is there by now, modules above all, stays until the end.
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 10, 10)


def leave(code: int) -> NoReturn:
    """Exit; at once where a task was given up, or where a thread of an agent's would outlive a stop."""
    threads = any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread())
    if _held_up or (code >= _FIRST_OF_SIGNALS and threads):
        os._exit(code)
    sys.exit(code)

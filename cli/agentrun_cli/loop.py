"""The event loop of a launch, which no agent can keep from ending."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 1.0
SWITCH_SECONDS = 0.0001
"""How long a busy loop delays the committing thread between two disk calls. Python's 5 ms would be longer than the
commit itself: agents and disk would take turns instead of working in parallel."""
GARBAGE_AFTER = 5_000
"""A run creates and drops some fifty objects per item, hardly any of them in cycles. Collecting after every 700
allocations, as Python does, takes a twelfth of its time."""
_FIRST_OF_SIGNALS = 129

_held_up = False


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, as SIGTERM does, until the launch handles signals itself.

    Nothing has begun by then. As an exception, an interrupt that arrives in a destructor or a callback would be printed
    and forgotten, and in the middle of making an event loop it would leave half of one behind.
    """
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Like asyncio.run, but abandon a task that swallows its cancellation: the launch has ended without it."""
    import asyncio

    global _held_up
    loop = asyncio.new_event_loop()
    _tune()
    try:
        return loop.run_until_complete(main())
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
    """Tune the interpreter, which belongs to the command alone."""
    import gc

    sys.setswitchinterval(SWITCH_SECONDS)
    # What exists by now, mostly modules, stays until the end.
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, 10, 10)


def leave(code: int) -> NoReturn:
    """Exit; immediately if a task was abandoned, or if an agent's thread would outlive a stop."""
    threads = any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread())
    if _held_up or (code >= _FIRST_OF_SIGNALS and threads):
        os._exit(code)
    sys.exit(code)

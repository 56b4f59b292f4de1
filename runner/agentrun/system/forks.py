"""Children that agents fork from a process of ours: they are copies of it, and must not do its work a second time.

An agent may fork, by `os.fork` or `multiprocessing`, as long as the child ends by itself. A child that comes back from
the agent instead would report an outcome, commit a checkpoint or start the next item in our place. So it ends where it
comes back: after the agent's call (`ending_children`), or at the event loop (`ending_children_of`). What it says for
people goes where the agent's prints go.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

_DO_INSTEAD = "end a child with os._exit, or use subprocess"


def refuse_in_child(pid: int) -> None:
    """Raise RuntimeError in any process but this one."""
    # Asked of the system each time: a fork by C code is not announced to Python.
    if os.getpid() != pid:
        raise RuntimeError(
            f"ctx was used in a forked child (pid {os.getpid()}) of the agent's process (pid {pid}); "
            f"pass the result to the parent, and use ctx there"
        )


@contextmanager
def ending_children(describe: Callable[[BaseException], str]) -> Iterator[None]:
    """A child that is forked within the block ends where it leaves the block, and not in our place.

    `describe` gives the text of what it raised.
    """
    pid = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != pid:
            _end_after(error, describe)
        raise
    if os.getpid() != pid:
        _end(f"a forked child returned from the agent; what it returned does not count ({_DO_INSTEAD})")


def _end_after(error: BaseException, describe: Callable[[BaseException], str]) -> NoReturn:
    if isinstance(error, SystemExit):
        # As Python would: None is success, and what is no number is said.
        if error.code is None or isinstance(error.code, int):
            _end("", error.code or 0)
        _end(str(error.code), 1)
    _end(f"a forked child raised; that does not count:\n{describe(error)}", 1)


def _end(why: str, code: int = 0) -> NoReturn:
    try:
        if why:
            sys.stderr.write(f"[agentrun] {why.rstrip()}\n")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


# ---- the event loop, and descriptors

_loops: dict[asyncio.AbstractEventLoop, int] = {}
"""The running loops of launches, with their threads."""
_descriptors: set[int] = set()
_is_hooked = False


@contextmanager
def ending_children_of(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While the block runs: a child that is forked in this thread ends when it comes back to the running loop."""
    _hook()
    before = _loops.get(loop)
    _loops[loop] = threading.get_ident()
    try:
        yield
    finally:
        if before is None:
            _loops.pop(loop, None)


def close_in_children(fd: int) -> None:
    """Children that are forked from now on do not hold this descriptor."""
    _hook()
    _descriptors.add(fd)


def _hook() -> None:
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        os.register_at_fork(after_in_child=_after_fork_in_child)


def _after_fork_in_child() -> None:
    while _descriptors:
        try:
            os.close(_descriptors.pop())
        except OSError:  # closed by the agent
            pass
    while _loops:
        loop, thread = _loops.popitem()
        if thread == threading.get_ident() and not loop.is_closed():
            loop.call_soon(_end, f"a forked child came back to the runner's event loop ({_DO_INSTEAD})")
            # To the front, before whatever else is ready: other agents' work, or ours. A loop without such a queue
            # ends the child a turn later.
            ready = getattr(loop, "_ready", None)
            if ready is not None:
                ready.rotate(1)

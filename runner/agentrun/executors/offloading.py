"""Functions that async agents run in threads: by `asyncio.to_thread`, or a framework does, with sync nodes and tools.

Cancelling an attempt does not end its threads. So each one is noted with the attempt that started it, and the attempt
is over when they are. The loop may be the user's own: it keeps its executor, and other calls are passed on as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, TypeVar

from agentrun.agents.context import CURRENT

T = TypeVar("T")
Calls = set[Future[Any]]
_LOOKUPS = {"getaddrinfo", "getnameinfo", "_getaddrinfo_debug"}
"""What a loop itself runs in threads. A name server that does not answer must not cost its item the retry, and two
lookups side by side do no harm."""


def note_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Note from now on what attempts on this loop run in threads, in the `calls` of their ends."""
    if isinstance(found := loop.run_in_executor, _Noting):
        found.launches += 1
    else:
        # A loop that is not written in Python may have no attributes of its own: then threads are not noted.
        with suppress(AttributeError):
            loop.run_in_executor = _Noting(loop)  # type: ignore[assignment, method-assign]


def leave_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Undo `note_threads`: after the last launch, the loop is as it was."""
    if isinstance(found := loop.run_in_executor, _Noting):
        found.launches -= 1
        if not found.launches:
            found.uninstall()


async def all_ended(calls: Calls) -> None:
    """Return when none of the calls is running. What has not begun never does."""
    while calls:
        for call in list(calls):
            call.cancel()
        ends = {asyncio.wrap_future(call) for call in list(calls)}
        try:
            if ends:
                await asyncio.wait(ends)
        finally:
            # Or a call that ends after its loop would complain of it.
            for end in ends:
                end.cancel()


class _Noting:
    """`run_in_executor` of a loop with attempts. Several launches on one loop share it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._inner = loop, loop.run_in_executor
        self._is_instrumented = "run_in_executor" in getattr(loop, "__dict__", ())
        self.launches = 1

    def uninstall(self) -> None:
        if self._is_instrumented:
            self._loop.run_in_executor = self._inner  # type: ignore[method-assign]
        else:
            del self._loop.run_in_executor

    def __call__(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        context = CURRENT.get(None)
        calls: Calls | None = getattr(context.end, "calls", None) if context is not None else None
        if calls is None or getattr(func, "__name__", "") in _LOOKUPS:
            return self._inner(executor, func, *args)
        if executor is not None:
            return self._inner(_NotingExecutor(executor, calls), func, *args)
        # The loop does not give its own executor away: the call has a future beside the one that this makes.
        call: Future[None] = Future()

        def work() -> T:
            if not call.set_running_or_notify_cancel():
                raise RuntimeError("this attempt is over")
            try:
                return func(*args)
            finally:
                call.set_result(None)

        _note(call, calls)
        try:
            done = self._inner(None, work)
        except BaseException:
            call.cancel()
            raise
        # Cancelled before it began, it never does. Otherwise this changes nothing.
        done.add_done_callback(lambda _: call.cancel())
        return done


class _NotingExecutor(Executor):
    """An executor of the user's own, whatever it runs its calls in."""

    def __init__(self, executor: Executor, calls: Calls) -> None:
        self._executor = executor
        self._calls = calls

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        call = self._executor.submit(fn, *args, **kwargs)
        _note(call, self._calls)
        return call


def _note(call: Future[Any], calls: Calls) -> None:
    calls.add(call)
    call.add_done_callback(calls.discard)

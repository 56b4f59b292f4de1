"""Async agents, on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.context import Context
from agentrun.agents.exceptions import outcome_from, user_traceback
from agentrun.agents.failure import THREAD_TIMEOUT, Failure
from agentrun.errors import AgentError
from agentrun.executors.calling import CLOSE_SECONDS, close_agent, perform_async, tell_of_close
from agentrun.executors.prints import LogSink, begin_log, end_log

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


CANCEL_SECONDS = 5.0
STOP_SECONDS = 1.0
"""Where the launch itself stops: the process ends soon, and the attempt with it."""


class InLoopExecutor:
    """An attempt is a task; a timeout cancels it.

    A task that swallows the cancellation is cancelled again and again. If it has not ended after
    `CANCEL_SECONDS` its item fails, with the code `THREAD_TIMEOUT`, and its slot stays taken until it does
    end: there are never two live attempts of one item, nor more than `concurrency` in all.
    """

    def __init__(self, job: Job, agent: Agent) -> None:
        self._job = job
        self._agent = agent
        self._target: Any = agent.target
        self._live = 0
        self._strays: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Future[bool]] = set()
        self._deadlines: dict[float, Deadlines[_LoopLink]] = {}
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._agent.kind == "class":
            self._target = None
            try:
                self._target = self._agent.target()
            except Exception as error:
                name = self._agent.reference or self._agent.target.__name__
                message = f"{name}: it cannot be made: {type(error).__name__}: {error}"
                raise AgentError(message, traceback=user_traceback(error)) from error

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        while self._strays and self._live + len(self._strays) >= self._job.concurrency:
            await asyncio.wait(self._strays, return_when=asyncio.FIRST_COMPLETED)
        link = _LoopLink(attempt.log_path, channel, self._loop)
        link.task = task = self._loop.create_task(self._attempt(attempt, link))
        self._live += 1
        deadlines = self._deadlines_of(attempt.timeout_seconds)
        if deadlines is not None:
            deadlines.begin(link)
        try:
            outcome = await link.ended
        except asyncio.CancelledError:
            link.is_cancelled = True
            await self._cancel(task, seconds=STOP_SECONDS)
            raise
        finally:
            self._live -= 1
            if deadlines is not None:
                deadlines.end(link)
            link.close()
        if outcome is not None:
            return outcome
        message = f"timed out after {attempt.timeout_seconds:g} s"
        if task.done():
            return Outcome("failed", failure=Failure("timeout", message))
        message += ", and did not end when it was cancelled; its slot stays taken until it does"
        return Outcome("failed", failure=Failure("timeout", message, code=THREAD_TIMEOUT))

    def _deadlines_of(self, seconds: float | None) -> Deadlines[_LoopLink] | None:
        if seconds is None:
            return None
        found = self._deadlines.get(seconds)
        if found is None:
            found = self._deadlines[seconds] = Deadlines(seconds, self._end)
        return found

    def _end(self, link: _LoopLink) -> None:
        """Its time is up."""
        assert link.task is not None
        link.is_cancelled = True

        def tell(ending: asyncio.Future[bool]) -> None:
            self._ending.discard(ending)
            if not link.ended.done():
                link.ended.set_result(None)

        self._ending.add(ending := asyncio.ensure_future(self._cancel(link.task, seconds=CANCEL_SECONDS)))
        ending.add_done_callback(tell)

    async def close(self) -> None:
        for deadlines in self._deadlines.values():
            deadlines.close()
        for task in self._strays:
            task.cancel()
        if self._agent.kind == "class" and self._target is not None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await close_agent(self._target)
            except Exception as error:  # the items are settled; this must not take the run's summary
                tell_of_close(error)

    async def _attempt(self, attempt: Attempt, link: _LoopLink) -> None:
        begin_log(link)
        try:
            context = Context(attempt, link, carries=self._job.carry) if self._agent.wants_ctx else None
            outcome = await perform_async(self._target, attempt.item, context, link)
            if link.last is not None:
                await link.last
        except asyncio.CancelledError as error:
            # By a word of its own, or with all tasks of a loop that ends: then nobody asks for the outcome.
            outcome = outcome_from(error)
        finally:
            end_log(link)
        # One that we cancelled comes too late, whatever it returns.
        if not link.ended.done() and not link.is_cancelled:
            link.ended.set_result(outcome)

    async def _cancel(self, task: asyncio.Task[None], *, seconds: float) -> bool:
        """True if the task ended."""
        deadline = asyncio.get_running_loop().time() + seconds
        cancelled: asyncio.CancelledError | None = None
        while not task.done() and asyncio.get_running_loop().time() < deadline:
            task.cancel()
            try:
                await asyncio.wait({task}, timeout=0.5)
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.done():
            self._strays.add(task)
            task.add_done_callback(self._free)
        elif not task.cancelled():
            task.exception()  # told already
        if cancelled is not None:
            raise cancelled
        return task.done()

    def _free(self, task: asyncio.Task[None]) -> None:
        self._strays.discard(task)
        if not task.cancelled():
            task.exception()  # told already


class _LoopLink(LogSink):
    """An attempt that is under way: its end of the channel, its log, its task, and what the task is awaited by."""

    awaits = True

    __slots__ = ("_channel", "_loop", "_thread", "ended", "is_cancelled", "last", "task")

    def __init__(self, log_path: Path, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(log_path)
        self._channel: Channel | None = channel
        self._loop = loop
        self._thread = threading.get_ident()
        self.task: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[Outcome | None] = loop.create_future()
        """With the outcome, or with None where its time was up."""
        self.is_cancelled = False
        """By us: for a timeout, or because the launch stops."""
        self.last: asyncio.Task[None] | None = None
        """The last message that nobody waits for is being told."""

    def log(self, text: str) -> None:
        self.write(text.encode("utf-8", "backslashreplace"))

    def tell(self, message: dict[str, Any]) -> None:
        if threading.get_ident() == self._thread:
            self.last = self._loop.create_task(self._after(self.last, message))
        else:
            asyncio.run_coroutine_threadsafe(self._call(message), self._loop).result()

    def call(self, message: dict[str, Any]) -> Any:
        return self._call(message)

    def close(self) -> None:
        self._channel = None
        super().close()

    async def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._channel is None:
            raise RuntimeError("this attempt is over")
        return await self._channel(message)

    async def _after(self, previous: asyncio.Task[None] | None, message: dict[str, Any]) -> None:
        if previous is not None:
            await previous
        if self._channel is not None:
            await self._channel(message)


T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """Calls `overdue(what)` for what has begun and not ended after `seconds`."""

    def __init__(self, seconds: float, overdue: Callable[[T], None]) -> None:
        self._seconds = seconds
        self._overdue = overdue
        self._loop = asyncio.get_running_loop()
        self._at: dict[T, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: T) -> None:
        self._at[what] = at = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._look)

    def end(self, what: T) -> None:
        self._at.pop(what, None)

    def close(self) -> None:
        self._at.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._at:
            what = next(iter(self._at))
            if (at := self._at[what]) > now:
                self._timer = self._loop.call_at(at, self._look)
                return
            del self._at[what]
            self._overdue(what)

"""Async agents, on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from agentrun.context import Context
from agentrun.errors import AgentError
from agentrun.executors.calls import CLOSE_SECONDS, close_agent, perform_async, tell_of_close
from agentrun.executors.deadlines import Deadlines
from agentrun.executors.facts import user_traceback
from agentrun.executors.port import Attempt, Channel, Outcome
from agentrun.executors.prints import LogSink, log_to
from agentrun.failure import THREAD_TIMEOUT, Failure

if TYPE_CHECKING:
    from agentrun.agents import Agent
    from agentrun.job import Job

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
        self._slots = asyncio.Semaphore(job.concurrency)
        self._strays: set[asyncio.Task[Outcome]] = set()
        self._ending: set[asyncio.Future[bool]] = set()
        self._deadlines: dict[float, Deadlines[_UnderWay]] = {}

    async def start(self) -> None:
        if self._agent.kind == "class":
            self._target = None
            try:
                self._target = self._agent.target()
            except Exception as error:
                name = self._agent.reference or self._agent.target.__name__
                message = f"{name}: it cannot be made: {type(error).__name__}: {error}"
                raise AgentError(message, traceback=user_traceback(error)) from error

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        await self._slots.acquire()
        try:
            under_way = _UnderWay(attempt, _LoopLink(LogSink(attempt.log_path), channel), self._attempt)
        except BaseException:
            self._slots.release()
            raise
        task = under_way.task
        task.add_done_callback(self._free)
        deadlines = self._deadlines_of(attempt.timeout_seconds)
        if deadlines is not None:
            deadlines.begin(under_way)
        try:
            await under_way.ended
        except asyncio.CancelledError:
            await self._cancel(task, seconds=STOP_SECONDS)
            raise
        finally:
            if deadlines is not None:
                deadlines.end(under_way)
            under_way.link.close()
        if not under_way.is_overdue:
            return task.result()
        message = f"timed out after {attempt.timeout_seconds:g} s"
        if task.done():
            return Outcome("failed", failure=Failure("timeout", message))
        message += ", and did not end when it was cancelled; its slot stays taken until it does"
        return Outcome("failed", failure=Failure("timeout", message, code=THREAD_TIMEOUT))

    def _deadlines_of(self, seconds: float | None) -> Deadlines[_UnderWay] | None:
        if seconds is None:
            return None
        found = self._deadlines.get(seconds)
        if found is None:
            found = self._deadlines[seconds] = Deadlines(seconds, self._end)
        return found

    def _end(self, under_way: _UnderWay) -> None:
        """Its time is up."""
        under_way.is_overdue = True
        self._ending.add(ending := asyncio.ensure_future(self._cancel(under_way.task)))

        def tell(ending: asyncio.Future[bool]) -> None:
            self._ending.discard(ending)
            if not under_way.ended.done():
                under_way.ended.set_result(None)

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

    async def _attempt(self, attempt: Attempt, link: _LoopLink) -> Outcome:
        with log_to(link.sink):
            context = Context(attempt, link, carries=self._job.carry)
            outcome = await perform_async(self._target, context, link, wants_ctx=self._agent.wants_ctx)
            await link.drain()
            return outcome

    async def _cancel(self, task: asyncio.Task[Outcome], *, seconds: float = CANCEL_SECONDS) -> bool:
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
        if cancelled is not None:
            raise cancelled
        return task.done()

    def _free(self, task: asyncio.Task[Outcome]) -> None:
        self._strays.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.exception()  # of a stray, or after a timeout: told already


class _UnderWay:
    """An attempt in its task. `ended` is done when the task is; or, once its time is up, when that was given up."""

    __slots__ = ("ended", "is_overdue", "link", "task")

    def __init__(
        self, attempt: Attempt, link: _LoopLink, perform: Callable[[Attempt, _LoopLink], Coroutine[Any, Any, Outcome]]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.link = link
        self.is_overdue = False
        self.ended: asyncio.Future[None] = loop.create_future()
        self.task = loop.create_task(perform(attempt, link))
        self.task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[Outcome]) -> None:
        if not self.is_overdue and not self.ended.done():
            self.ended.set_result(None)


class _LoopLink:
    awaits = True

    def __init__(self, sink: LogSink, channel: Channel) -> None:
        self.sink = sink
        self._channel: Channel | None = channel
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._last: asyncio.Task[None] | None = None

    def log(self, text: str) -> None:
        self.sink.write(text.encode("utf-8", "backslashreplace"))

    def tell(self, message: dict[str, Any]) -> None:
        if threading.get_ident() == self._thread:
            self._last = self._loop.create_task(self._after(self._last, message))
        else:
            asyncio.run_coroutine_threadsafe(self._call(message), self._loop).result()

    def call(self, message: dict[str, Any]) -> Any:
        return self._call(message)

    async def drain(self) -> None:
        if self._last is not None:
            await self._last

    def close(self) -> None:
        self._channel = None
        self.sink.close()

    async def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._channel is None:
            raise RuntimeError("this attempt is over")
        return await self._channel(message)

    async def _after(self, previous: asyncio.Task[None] | None, message: dict[str, Any]) -> None:
        if previous is not None:
            await previous
        if self._channel is not None:
            await self._channel(message)

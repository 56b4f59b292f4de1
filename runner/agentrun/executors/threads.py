"""Sync agents in threads of the runner's process: they share its memory, and cannot be ended.

After a timeout the item fails with the code `THREAD_TIMEOUT`, at once, and the thread's slot stays taken until
the agent returns. The threads are daemons of our own: those of a ThreadPoolExecutor would hold up the exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.context import Context
from agentrun.agents.exceptions import outcome_from
from agentrun.agents.failure import THREAD_TIMEOUT, Failure
from agentrun.executors.calling import CLOSE_SECONDS, close_agent, perform, tell_of_close
from agentrun.executors.prints import LogSink, log_to
from agentrun.item import Item

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


class ThreadExecutor:
    def __init__(self, job: Job, agent: Agent) -> None:
        self._job = job
        self._agent = agent
        self._slots = asyncio.Semaphore(job.concurrency)
        self._idle: list[_Worker] = []

    async def start(self) -> None:
        """Threads are started when they are needed."""

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        worker = self._idle.pop() if self._idle else _Worker(self._agent)
        ended: asyncio.Future[Outcome] = loop.create_future()

        def free(outcome: Outcome) -> None:
            self._idle.append(worker)
            self._slots.release()
            if not ended.done():
                ended.set_result(outcome)

        link = _ThreadLink(LogSink(attempt.log_path), channel, loop)
        context = Context(attempt, link, carries=self._job.carry) if self._agent.wants_ctx else None
        variables = contextvars.copy_context()
        worker.begin(_Task(attempt.item, context, link, variables, lambda o: _post(loop, free, o)))
        try:
            await asyncio.wait({ended}, timeout=attempt.timeout_seconds)
            if ended.done():
                return ended.result()
        finally:
            # After a timeout, or when cancelled: what the thread still says is not heard any more.
            ended.cancel()
            if context is not None:
                context.close()
            link.close()
        message = f"timed out after {attempt.timeout_seconds:g} s; its thread's slot stays taken until it returns"
        return Outcome("failed", failure=Failure("timeout", message, code=THREAD_TIMEOUT))

    async def close(self) -> None:
        deadline = asyncio.get_running_loop().time() + CLOSE_SECONDS
        workers, self._idle = self._idle, []
        for worker in workers:
            worker.end()
        while any(worker.is_alive for worker in workers) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)


@dataclass(slots=True)
class _Task:
    item: Item
    context: Context | None
    link: _ThreadLink
    variables: contextvars.Context
    done: Callable[[Outcome], None]


class _Worker:
    """One thread, and its own instance of a class agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._target: Any = None if agent.kind == "class" else agent.target
        self._thread = threading.Thread(target=self._work, daemon=True, name="agentrun-agent")
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def begin(self, task: _Task) -> None:
        self._tasks.put(task)

    def end(self) -> None:
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.done(task.variables.run(self._perform, task))
            del task  # an item may be large
        if self._agent.kind == "class" and self._target is not None:
            try:
                asyncio.run(close_agent(self._target))
            except Exception as error:
                tell_of_close(error)

    def _perform(self, task: _Task) -> Outcome:
        with log_to(task.link.sink):
            try:
                if self._target is None:
                    self._target = self._agent.target()
            except BaseException as error:
                return outcome_from(error)
            return perform(self._target, task.item, task.context, task.link)


class _ThreadLink:
    awaits = False

    def __init__(self, sink: LogSink, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self.sink = sink
        self._channel: Channel | None = channel
        self._loop = loop

    def log(self, text: str) -> None:
        self.sink.write(text.encode("utf-8", "backslashreplace"))

    def tell(self, message: dict[str, Any]) -> None:
        self.call(message)

    def call(self, message: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(self._call(message), self._loop).result()

    def close(self) -> None:
        self._channel = None
        self.sink.close()

    async def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        # On the loop, as `close` is: an attempt that is over can't slip a message in.
        if self._channel is None:
            raise RuntimeError("this attempt is over")
        return await self._channel(message)


def _post(loop: asyncio.AbstractEventLoop, free: Callable[[Outcome], None], outcome: Outcome) -> None:
    try:
        loop.call_soon_threadsafe(free, outcome)
    except RuntimeError:  # the loop was closed; nobody waits any more
        pass

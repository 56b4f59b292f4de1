"""Sync agents in threads of the runner's process: they share its memory, and cannot be killed.

After a timeout the item fails at once, with the code `THREAD_TIMEOUT`, and the thread's slot stays taken until the
agent returns. The threads are daemons of our own: those of a ThreadPoolExecutor would delay the exit.
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
from agentrun.agents.context import LazyContext
from agentrun.agents.exceptions import outcome_from, outcome_without_start
from agentrun.agents.failure import THREAD_TIMEOUT, Failure
from agentrun.agents.messages import Message, Refused, Reply
from agentrun.executors.calling import CLOSE_SECONDS, close_agent, perform, warn_of_close
from agentrun.executors.local import LocalEnd, wait_for_earlier
from agentrun.executors.prints import capturing_to
from agentrun.item import Item
from agentrun.system.deadlines import Deadline

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


class ThreadExecutor:
    def __init__(self, job: Job, agent: Agent) -> None:
        self._job = job
        self._agent = agent
        self._slots = asyncio.Semaphore(job.concurrency)
        self._idle: list[_AgentThread] = []
        self._strays: dict[str, asyncio.Future[None]] = {}
        """By item: the end of an attempt whose thread has not returned, though nobody waits for its outcome by now."""

    async def start(self) -> None:
        """Nothing: threads are started when they are needed."""

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        key, loop = attempt.item.key, asyncio.get_running_loop()
        if key in self._strays and (late := await wait_for_earlier(attempt, [self._strays[key]])) is not None:
            return late
        await self._slots.acquire()
        try:
            end = ThreadEnd(attempt, channel, loop)
            thread = self._idle.pop() if self._idle else _AgentThread(self._agent)
        except (OSError, RuntimeError) as error:
            self._slots.release()
            if (outcome := outcome_without_start(error, "a thread")) is not None:
                return outcome
            raise
        finished: asyncio.Future[Outcome] = loop.create_future()

        def finish(outcome: Outcome) -> None:
            self._idle.append(thread)
            self._slots.release()
            if key in self._strays:
                self._strays.pop(key).set_result(None)
            if not finished.done():
                finished.set_result(outcome)

        context = LazyContext(attempt, end, self._job.carry)
        variables = contextvars.copy_context()
        thread.start(_Task(attempt.item, context, end, variables, lambda o: _post(loop, finish, o)))
        overdue = loop.create_future()
        deadline = Deadline(attempt.timeout_seconds, lambda: overdue.set_result(None))
        try:
            await asyncio.wait({finished, overdue}, return_when=asyncio.FIRST_COMPLETED)
            if finished.done():
                return finished.result()
        finally:
            deadline.close()
            if not finished.done():
                self._strays[key] = loop.create_future()
            # After a timeout, or when cancelled: nothing that the thread still sends gets through.
            finished.cancel()
            context.close()
            end.close()
        message = f"timed out after {attempt.timeout_seconds:g} s; the slot stays taken until its thread returns"
        return Outcome("failed", failure=Failure("timeout", message, code=THREAD_TIMEOUT))

    async def rest(self) -> None:
        """Nothing waits for items here."""

    async def close(self) -> None:
        deadline = asyncio.get_running_loop().time() + CLOSE_SECONDS
        threads, self._idle = self._idle, []
        for thread in threads:
            thread.close()
        while any(thread.is_alive for thread in threads) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)


@dataclass(slots=True)
class _Task:
    item: Item
    context: LazyContext
    end: ThreadEnd
    variables: contextvars.Context
    done: Callable[[Outcome], None]


class _AgentThread:
    """One thread, with its own instance of a class agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._target: Any = None if agent.kind == "class" else agent.target
        self._thread = threading.Thread(target=self._work, daemon=True, name="agentrun-agent")
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, task: _Task) -> None:
        self._tasks.put(task)

    def close(self) -> None:
        """Let the thread close its agent and exit, after its task."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.done(task.variables.run(self._perform, task))
            del task  # an item may be large
        if self._agent.kind == "class" and self._target is not None:
            try:
                asyncio.run(close_agent(self._target))
            except Exception as error:
                warn_of_close(error)

    def _perform(self, task: _Task) -> Outcome:
        with capturing_to(task.end):
            try:
                if self._target is None:
                    self._target = self._agent.target()
            except BaseException as error:
                return outcome_from(error)
            return perform(self._target, task.item, task.context, task.end, wants_ctx=self._agent.wants_ctx)


class ThreadEnd(LocalEnd):
    """The agent end of an attempt in a thread."""

    awaits = False

    __slots__ = ()

    def __init__(self, attempt: Attempt, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(attempt.log_path)
        self.attempt, self.channel, self.loop, self._said = attempt, channel, loop, 0

    def send(self, message: Message) -> None:
        reply = self._call_from_thread(message)
        if isinstance(reply, Refused):
            # A thread cannot be ended: without this it would continue until its next message.
            raise RuntimeError(reply.error)

    def call(self, message: Message) -> Reply:
        return self._call_from_thread(message)


def _post(loop: asyncio.AbstractEventLoop, finish: Callable[[Outcome], None], outcome: Outcome) -> None:
    try:
        loop.call_soon_threadsafe(finish, outcome)
    except RuntimeError:  # the loop is closed; nobody waits any more
        pass

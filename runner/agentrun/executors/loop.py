"""Async agents, on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.context import LazyContext
from agentrun.agents.exceptions import outcome_from, outcome_without_start, user_traceback
from agentrun.agents.failure import THREAD_TIMEOUT, Failure
from agentrun.agents.messages import Message, Reply
from agentrun.errors import AgentError
from agentrun.executors.calling import CLOSE_SECONDS, close_agent, perform_async, warn_of_close
from agentrun.executors.local import LocalEnd, is_on_loop, wait_for_earlier
from agentrun.executors.offloading import Calls, all_ended, leave_threads, note_threads
from agentrun.executors.prints import capture_to
from agentrun.system.deadlines import Deadline

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


CANCEL_SECONDS = 5.0
"""How long an attempt that timed out may take to end once it is cancelled."""
STOP_SECONDS = 1.0
"""The same when the launch itself stops: the process exits soon, and the attempt with it."""


class LoopExecutor:
    """Each attempt is a task, which a timeout cancels.

    A task that swallows the cancellation is cancelled again and again. If it, or a thread in which it runs a function,
    has not ended after `CANCEL_SECONDS` its item fails with the code `THREAD_TIMEOUT`, and the slot stays taken until
    they do end: there are never two live attempts of one item, nor more than `concurrency` in all.
    """

    def __init__(self, job: Job, agent: Agent) -> None:
        self._job = job
        self._agent = agent
        self._target: Any = agent.target
        self._live = 0
        self._strays: dict[asyncio.Task[None], LoopEnd] = {}
        """By the task that waits for its end: attempts that did not end when they were cancelled."""
        self._cancelling: set[asyncio.Future[bool]] = set()
        self._deadlines: dict[float, Deadlines[LoopEnd]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._has_started = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_started = True
        note_threads(self._loop)
        if self._agent.kind == "class":
            self._target = None
            try:
                self._target = self._agent.target()
            except Exception as error:
                name = self._agent.reference or self._agent.target.__name__
                message = f"{name}: it cannot be created: {type(error).__name__}: {error}"
                raise AgentError(message, traceback=user_traceback(error)) from error

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        while self._strays and self._live + len(self._strays) >= self._job.concurrency:
            await asyncio.wait(self._strays, return_when=asyncio.FIRST_COMPLETED)
        if self._strays:
            key = attempt.item.key
            earlier = [ending for ending, end in self._strays.items() if end.attempt.item.key == key]
            if (outcome := await wait_for_earlier(attempt, earlier)) is not None:
                return outcome
        try:
            end = LoopEnd(attempt, channel, self._loop)
        except OSError as error:
            if (outcome := outcome_without_start(error, "an attempt")) is not None:
                return outcome
            raise
        end.task = task = self._loop.create_task(self._attempt(attempt, end))
        self._live += 1
        deadlines, seconds = None, attempt.timeout_seconds
        if seconds is not None:
            deadlines = self._deadlines.get(seconds) or self._new_deadlines(seconds)
            deadlines.add(end)
        try:
            found = await end.outcome
        except asyncio.CancelledError:
            end.is_cancelled = True
            await self._cancel(end, seconds=STOP_SECONDS)
            raise
        finally:
            self._live -= 1
            if deadlines is not None:
                deadlines.remove(end)
            end.close()
        if found is not None:
            return found
        message = f"timed out after {attempt.timeout_seconds:g} s"
        if task.done() and not end.calls:
            return Outcome("failed", failure=Failure("timeout", message))
        left = "it" if not task.done() else "a function that it runs in a thread"
        message += f", and {left} did not end when it was cancelled; its slot stays taken until it does"
        return Outcome("failed", failure=Failure("timeout", message, code=THREAD_TIMEOUT))

    def _new_deadlines(self, seconds: float) -> Deadlines[LoopEnd]:
        made = self._deadlines[seconds] = Deadlines(seconds, self._time_out)
        return made

    def _time_out(self, end: LoopEnd) -> None:
        end.is_cancelled = True

        def finish(cancelling: asyncio.Future[bool]) -> None:
            self._cancelling.discard(cancelling)
            if not end.outcome.done():
                end.outcome.set_result(None)

        self._cancelling.add(cancelling := asyncio.ensure_future(self._cancel(end, seconds=CANCEL_SECONDS)))
        cancelling.add_done_callback(finish)

    async def rest(self) -> None:
        """Nothing waits for items here."""

    async def close(self) -> None:
        for deadlines in self._deadlines.values():
            deadlines.close()
        for end in self._strays.values():
            assert end.task is not None
            end.task.cancel()
        if self._has_started:
            self._has_started = False
            leave_threads(self._loop)
        if self._agent.kind == "class" and self._target is not None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await close_agent(self._target)
            except Exception as error:  # the items are settled; this must not cost the run its summary
                warn_of_close(error)

    async def _attempt(self, attempt: Attempt, end: LoopEnd) -> None:
        capture_to(end)
        try:
            context = LazyContext(attempt, end, self._job.carry)
            outcome = await perform_async(self._target, attempt.item, context, end, wants_ctx=self._agent.wants_ctx)
            while end.sending:
                await end.sending.pop()
        except asyncio.CancelledError as error:
            # Cancelled by the agent itself; or with all tasks of a loop that ends, and nobody awaits the outcome.
            outcome = outcome_from(error)
        except Exception as error:  # ours, not the agent's: a message that it sent could not be processed
            if not end.outcome.done():
                end.outcome.set_exception(error)
            return
        if end.calls and outcome.kind in ("failed", "waiting"):  # there may be another attempt
            await _wait_for_threads(end)
        # An attempt that we cancelled is too late, whatever it returns.
        if not end.outcome.done() and not end.is_cancelled:
            end.outcome.set_result(outcome)

    async def _cancel(self, end: LoopEnd, *, seconds: float) -> bool:
        """Cancel the attempt until it ends; False if it has not ended after `seconds`."""
        assert end.task is not None
        ending = self._loop.create_task(self._end_of(end, end.task))
        deadline = self._loop.time() + seconds
        cancelled: asyncio.CancelledError | None = None
        while not ending.done() and self._loop.time() < deadline:
            end.task.cancel()
            try:
                await asyncio.wait({ending}, timeout=0.5)
            except asyncio.CancelledError as error:
                cancelled = error
        if not ending.done():
            self._strays[ending] = end
            ending.add_done_callback(self._strays.pop)
        if cancelled is not None:
            raise cancelled
        return ending.done()

    async def _end_of(self, end: LoopEnd, task: asyncio.Task[None]) -> None:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it
        await all_ended(end.calls)


class LoopEnd(LocalEnd):
    """The agent end of an attempt on the loop, with the attempt's task and the future of its outcome."""

    __slots__ = ("_thread", "calls", "is_cancelled", "outcome", "sending", "task")

    def __init__(self, attempt: Attempt, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(attempt.log_path)
        self.attempt, self.channel, self.loop, self._said = attempt, channel, loop, 0
        self._thread = threading.get_ident()
        self.task: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Outcome | None] = loop.create_future()
        """The outcome; None for an attempt that timed out."""
        self.calls: Calls = set()
        """What it runs in threads now."""
        self.is_cancelled = False
        """Whether we cancelled the attempt: for a timeout, or because the launch stops."""
        self.sending: set[asyncio.Task[Reply]] | None = None
        """The messages sent without a call that are on their way, or could not be processed."""

    @property
    def awaits(self) -> bool:
        """Whether the caller is on an event loop. A sync function that the agent runs in a thread is not: it waits."""
        return is_on_loop()

    def send(self, message: Message) -> None:
        if threading.get_ident() != self._thread:
            self._call_from_thread(message)
            return
        if self.sending is None:
            self.sending = set()
        self.sending.add(sent := self.loop.create_task(self._deliver(message)))
        sent.add_done_callback(self._sent)

    def call(self, message: Message) -> Any:
        if threading.get_ident() != self._thread:
            if self.awaits:  # on a loop of the agent's own
                return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._deliver(message), self.loop))
            return self._call_from_thread(message)
        # A task, too: called directly, it would overtake what was sent before.
        return self.loop.create_task(self._deliver(message))

    def _sent(self, task: asyncio.Task[Reply]) -> None:
        assert self.sending is not None
        if task.cancelled() or task.exception() is None or not self.is_open:
            self.sending.discard(task)


async def _wait_for_threads(end: LoopEnd) -> None:
    """Return when its threads have ended, or nobody waits for its outcome any more; not if the agent cancels it."""
    while end.calls and not end.is_cancelled and not end.outcome.done():
        with suppress(asyncio.CancelledError):
            await all_ended(end.calls)


T = TypeVar("T", bound=Hashable)


class Deadlines(Generic[T]):
    """Calls `overdue(what)` for everything added and not removed within `seconds`, by one timer for all."""

    def __init__(self, seconds: float, overdue: Callable[[T], None]) -> None:
        self._seconds = seconds
        self._overdue = overdue
        self._loop = asyncio.get_running_loop()
        self._at: dict[T, float] = {}
        self._fired: dict[T, Deadline] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, what: T) -> None:
        self._at[what] = at = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._check)

    def remove(self, what: T) -> None:
        self._at.pop(what, None)
        if self._fired and what in self._fired:
            self._fired.pop(what).close()

    def close(self) -> None:
        self._at.clear()
        if self._timer is not None:
            self._timer.cancel()
        while self._fired:
            self._fired.popitem()[1].close()

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._at:
            what = next(iter(self._at))
            if (at := self._at[what]) > now:
                self._timer = self._loop.call_at(at, self._check)
                return
            del self._at[what]
            self._fired[what] = fired = Deadline(None, partial(self._overdue, what))
            fired.fire(at, self._seconds)

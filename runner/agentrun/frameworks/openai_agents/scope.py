"""Where in an item the SDK is at work: which run, within which tool call. It names what is remembered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agentrun.agents.context import Context, place
from agentrun.agents.memory import ItemMemory, SideBySide

if TYPE_CHECKING:
    from agents import RunResult, RunResultStreaming

    from agentrun.frameworks.openai_agents.copies import Copies
    from agentrun.frameworks.openai_agents.servers import Servers


class Carried(BaseException):
    """An error on its way out of all runs, to agentrun. The SDK makes messages for the model of every Exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class Place:
    """An attempt, a tool call or a guardrail: several runs may begin in it, each with a prefix of its own."""

    ctx: Context
    memory: ItemMemory
    prefix: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def next_prefix(self) -> str:
        """Runs are numbered as they begin; the first has no number."""
        number = next(self.numbers)
        return self.prefix if number == 1 else f"{self.prefix}{number}/"


@dataclass(eq=False)
class Run:
    """One run of an agent. What it hands over to belongs to it; an agent that is a tool has a run of its own."""

    place: Place
    prefix: str
    copies: Copies
    servers: Servers | None
    """Who connects MCP servers; None if the user does."""
    edited: dict[str, str] = field(default_factory=dict)
    """By `call_name`, of this run and those within it: the arguments that a person chose."""
    within: list[tuple[RunResult | RunResultStreaming, Run]] = field(default_factory=list)
    """The runs within this one that may have been interrupted: each knows the approvals that it is waiting for."""
    warned: set[str] = field(default_factory=set)
    calls: SideBySide = field(default_factory=SideBySide)
    """Of tools, in this run alone."""
    agent: str = ""
    """The name of the agent whose turn it is."""

    @property
    def ctx(self) -> Context:
        return self.place.ctx

    def warn(self, text: str) -> None:
        """Write it to the item's log, once."""
        if text not in self.warned:
            self.warned.add(text)
            self.ctx.log(f"[agentrun] {text}")

    async def remember(
        self, name: str, call: Callable[[], Awaitable[Any]], *, request: Any, view: Callable[[Any], str]
    ) -> Any:
        """The result of the call, in its JSON form.

        The SDK cancels what runs beside something that failed. A call that has come to its end by then is remembered
        all the same.
        """
        has_ended = False

        async def noted() -> Any:
            nonlocal has_ended
            value = await call()
            has_ended = True
            return value

        step = asyncio.ensure_future(self.place.memory.step(self.prefix + name, noted, request=request, view=view))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            if not has_ended:
                step.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({step})
            step.add_done_callback(_ignore_result)
            raise

    def call_name(self, call_id: str) -> str:
        """A tool call's name within the item: servers may give the same id to the calls of two runs."""
        return f"{self.prefix}{call_id}"

    def begin_nested(self) -> Run:
        """A run that is started within this one."""
        return self._inside(self.place, self.place.next_prefix())

    def inside(self, name: str) -> Run:
        """Where a call of this run is at work, such as a tool's: what is started there is named after it."""
        prefix = f"{self.prefix}{name}/"
        return self._inside(Place(self.ctx, self.place.memory, prefix), prefix)

    def _inside(self, place: Place, prefix: str) -> Run:
        return Run(place, prefix, self.copies, self.servers, self.edited, self.within, self.warned)


def _ignore_result(step: asyncio.Future[Any]) -> None:
    if not step.cancelled():
        step.exception()


_run: ContextVar[Run | None] = ContextVar("agentrun_openai_agents_run", default=None)
_numbers: WeakKeyDictionary[Context, dict[str, Iterator[int]]] = WeakKeyDictionary()
"""Of the runs that an attempt begins, by the call of another framework that begins them. Not its Place, which would
keep the context, and so itself, for ever."""


def current_run() -> Run | None:
    """The run that is calling; None outside of those that are remembered."""
    return _run.get()


def place_in(ctx: Context) -> Place:
    """Where a run begins that is started now."""
    run = _run.get()
    if run is not None and run.ctx is ctx:
        return run.place
    numbers, prefix = _numbers.setdefault(ctx, {}), place()
    return Place(ctx, ItemMemory(ctx), prefix, numbers.setdefault(prefix, itertools.count(1)))


@contextmanager
def working_on(run: Run) -> Iterator[None]:
    """Let `current_run` find the run within the block."""
    before = _run.set(run)
    try:
        yield
    finally:
        _run.reset(before)

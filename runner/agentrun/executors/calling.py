"""Calling the user's code for one attempt, and turning what it does into an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agentrun.agents.attempt import AgentEnd, Outcome
from agentrun.agents.context import CURRENT, LazyContext
from agentrun.agents.exceptions import outcome_from, user_traceback
from agentrun.agents.failure import Failure
from agentrun.errors import Parked, Skip
from agentrun.item import Item
from agentrun.system.forks import ending_children
from agentrun.values.json import encode

Target = Callable[..., Any]
CLOSE_SECONDS = 10.0
"""How long an agent may take to close."""


def perform(target: Target, item: Item, context: LazyContext, end: AgentEnd, *, wants_ctx: bool) -> Outcome:
    """Run a sync agent's attempt.

    Whatever the agent raises becomes an outcome, even KeyboardInterrupt.
    """
    before = CURRENT.set(context)
    try:
        try:
            with ending_children(user_traceback):
                value = target(item, ctx=context.open()) if wants_ctx else target(item)
        except Skip as skip:
            outcome = outcome_from(skip)
        else:
            if hasattr(value, "__await__"):
                return _refuse_awaitable(value)
            made_files = context.context is not None and context.context.made_files
            outcome = Outcome("done", encode(value), made_files=made_files)
        if context.context is not None and (message := context.context.carry_message()) is not None:
            end.call(message)
        return outcome
    except Parked:
        return Outcome("waiting")
    except BaseException as error:
        return Outcome("waiting") if has_parked(error) else outcome_from(error)
    finally:
        CURRENT.reset(before)
        context.is_open = False
        if context.context is not None:
            context.context.close()


async def perform_async(target: Target, item: Item, context: LazyContext, end: AgentEnd, *, wants_ctx: bool) -> Outcome:
    """Run an async agent's attempt.

    A cancellation from outside and the user's Ctrl-C are not the agent's doing, and are raised.
    """
    before = CURRENT.set(context)
    try:
        try:
            value = await (target(item, ctx=context.open()) if wants_ctx else target(item))
        except Skip as skip:
            outcome = outcome_from(skip)
        else:
            made_files = context.context is not None and context.context.made_files
            outcome = Outcome("done", encode(value), made_files=made_files)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # swallowed by the agent; what it returned is too late
            raise asyncio.CancelledError
        if context.context is not None and (message := context.context.carry_message()) is not None:
            await end.call(message)
        return outcome
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        # Nobody cancelled this attempt: the agent raised the CancelledError itself.
        return outcome_from(error)
    except KeyboardInterrupt:
        raise
    except Parked:
        return Outcome("waiting")
    except BaseException as error:
        return Outcome("waiting") if has_parked(error) else outcome_from(error)
    finally:
        CURRENT.reset(before)
        context.is_open = False
        if context.context is not None:
            context.context.close()


def has_parked(error: BaseException) -> bool:
    """Whether what was raised means that the attempt waits for a person: a task group wraps what its tasks raise."""
    return isinstance(error, BaseExceptionGroup) and error.subgroup(Parked) is not None


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _refuse_awaitable(value: Any) -> Outcome:
    if hasattr(value, "close"):
        value.close()  # or "was never awaited" is printed later, without a place
    kind = type(value).__name__
    message = f"the agent returned a {kind}; declare it with `async def`"
    return Outcome("failed", failure=Failure("output", message))


async def close_agent(instance: Any) -> None:
    """Close a class agent: call its `aclose()`, or else its `close()`, if it has one."""
    close = getattr(instance, "aclose", None) or getattr(instance, "close", None)
    if callable(close):
        result = close()
        if hasattr(result, "__await__"):
            await result


def warn_of_close(error: Exception) -> None:
    """Log a warning that an agent could not be closed."""
    import logging

    logging.getLogger("agentrun").warning("the agent could not be closed: %s: %s", type(error).__name__, error)

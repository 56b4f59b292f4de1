"""What the adapter uses of the Agents SDK that the SDK does not promise. Nothing else imports or names any of it.

The extra pins the SDK's minor version, and a test fails for each of these that is gone.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeAlias

from agents import FunctionTool, Model, RunConfig
from agents.models._retry_runtime import provider_managed_retries_disabled
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.run_config import _coerce_run_config
from agents.tool import (
    _DEFAULT_FAILURE_HANDLED_ATTR,
    _invoke_function_tool_with_metadata,
    default_tool_error_function,
    resolve_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)
from agents.tool_context import ToolContext

__all__ = [
    "AgentRunner",
    "Invoke",
    "call_tool",
    "clean_up",
    "coerce_config",
    "get_default_agent_runner",
    "is_agent",
    "makes_messages_of_errors",
    "mark_failed",
    "set_arguments",
    "set_default_agent_runner",
    "with_body",
    "with_invoker",
    "without_hidden_retries",
]

Invoke: TypeAlias = Callable[[ToolContext[Any], str], Awaitable[Any]]


def coerce_config(given: RunConfig | dict[str, Any] | None) -> RunConfig | None:
    """The configuration of a run, which may be given as a dict."""
    return None if given is None else _coerce_run_config(given)


def without_hidden_retries() -> AbstractContextManager[None]:
    """Within it, the SDK's models tell their clients not to retry: as `ModelRetrySettings(max_retries=0)` does."""
    return provider_managed_retries_disabled(True)


async def clean_up(model: Model, owner: object) -> None:
    """Tell a model that the run it was used by has ended."""
    await model._cleanup_on_run_end(owner)


def is_agent(tool: FunctionTool) -> bool:
    """Whether it was made by `Agent.as_tool`."""
    return tool._is_agent_tool


def makes_messages_of_errors(tool: FunctionTool) -> bool:
    """Whether the model is told of the tool's errors in the SDK's own words, which is the default."""
    return resolve_function_tool_failure_error_function(tool) is default_tool_error_function


def with_body(tool: FunctionTool, change: Callable[[Invoke], Invoke]) -> FunctionTool:
    """A copy whose function is changed, below the place where the SDK makes messages for the model of its errors."""
    new = copy.copy(tool)
    body: Invoke | None = getattr(new.on_invoke_tool, "_invoke_tool_impl", None)
    if body is None:  # made by hand: there is no such place; the SDK reads the types of its parameters
        new.on_invoke_tool = wraps(new.on_invoke_tool)(change(new.on_invoke_tool))
    else:
        new.on_invoke_tool._invoke_tool_impl = wraps(body)(change(body))  # type: ignore[attr-defined]
    return new


def with_invoker(tool: FunctionTool, invoke: Invoke) -> FunctionTool:
    """A copy that is invoked so, and not timed: whatever it does with the tool itself is."""
    new = copy.copy(tool)
    new.timeout_seconds = None
    body: Invoke | None = getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)
    if body is None:
        new.on_invoke_tool = invoke
    else:
        # By its kind and the marks on its function the SDK knows how to check arguments before somebody approves them.
        new.on_invoke_tool = with_function_tool_failure_error_handler(wraps(body)(invoke), _ignore)
        bind = new.on_invoke_tool.__agents_bind_function_tool__  # type: ignore[attr-defined]
        new.on_invoke_tool = bind(new)
    return new


def _ignore(tool: FunctionTool, error: Exception, arguments: str) -> None:
    """The tool inside has reported it."""


async def call_tool(tool: FunctionTool, context: ToolContext[Any], arguments: str) -> tuple[Any, bool]:
    """Its result, and whether that is a message of the SDK's own about a failure; its timeout holds."""
    called = await _invoke_function_tool_with_metadata(function_tool=tool, context=context, arguments=arguments)
    return called.output, called.is_sdk_generated_error


def mark_failed(context: ToolContext[Any]) -> None:
    """Let the SDK know that the result is a message of its own about a failure."""
    setattr(context, _DEFAULT_FAILURE_HANDLED_ATTR, True)


def set_arguments(context: ToolContext[Any], arguments: str) -> None:
    """Let the call have other arguments than those that the model gave, and that may have been checked already."""
    context.tool_arguments = arguments
    context._function_tool_arguments = None

"""Tools whose calls are remembered."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from agents import Agent, FunctionTool, Tool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.exceptions import AgentsException, UserError
from agents.tool import ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool
from agents.tool_context import ToolContext
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError

from agentrun.agents.memory import digest_of
from agentrun.errors import AgentSignal
from agentrun.frameworks.openai_agents.internals import (
    Invoke,
    call_tool,
    is_agent,
    makes_messages_of_errors,
    mark_failed,
    set_arguments,
    with_body,
    with_invoker,
)
from agentrun.frameworks.openai_agents.scope import Carried, Run, current_run, working_on

_PARTS = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_PARTS_BY_NAME = {cls.__name__: cls for cls in _PARTS}
# They run here, and not through a function that could be remembered. Hosted tools run within the model's response.
_NOT_REMEMBERED = (ShellTool, LocalShellTool, ApplyPatchTool, ComputerTool, CustomTool)


def remembering(tool: Tool) -> Tool:
    """A copy of the tool whose calls are remembered; other than function tools as they are."""
    if not isinstance(tool, FunctionTool):
        return tool
    inner = with_body(tool, partial(_carrying, is_run=is_agent(tool) and makes_messages_of_errors(tool)))
    call = _call_agent if is_agent(tool) else _call_function

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        run = current_run()
        if run is None:
            return (await call_tool(inner, context, arguments))[0]
        if (edited := run.edited.get(run.call_name(context.tool_call_id))) is not None:
            arguments = edited
            set_arguments(context, edited)
        return await run.calls.make(partial(call, run, inner, context, arguments))

    return with_invoker(tool, invoke)


def warn_of(tool: Tool, run: Run) -> None:
    """Tell the item's log of a tool that is not remembered."""
    if isinstance(tool, _NOT_REMEMBERED):
        kind = type(tool).__name__
        run.warn(f"{kind} {tool.name!r} is not remembered: an item that is resumed makes its calls again")


async def _call_agent(run: Run, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
    """Not a step of its own: its run is remembered call by call, and may end in a question for a person."""
    with working_on(run.inside(f"{tool.name} {context.tool_call_id}")):
        return (await call_tool(tool, context, arguments))[0]


async def _call_function(run: Run, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
    name = f"{tool.name} {context.tool_call_id}"
    final = context.agent.output_type if isinstance(context.agent, Agent) else None
    failure: Exception | None = None

    async def call() -> Any:
        nonlocal failure
        before = _state_of(context)
        try:
            with working_on(run.inside(name)):
                output, is_message = await call_tool(tool, context, arguments)
        except Exception as error:
            failure = error
            raise
        if _state_of(context) != before:
            run.warn(
                f"tool {tool.name!r} changed the run's context; only its result is remembered, so an item that is "
                f"resumed does not see that change"
            )
        kept = _dump(output, final)
        return {**kept, "failed": True} if is_message else kept

    try:
        known = await run.remember(name, call, request=arguments, view=_view)
    except Exception as error:
        if error is failure:
            raise  # for the SDK, as without us
        raise Carried(error) from error
    if known.get("failed"):
        mark_failed(context)
    return _load(known, final)


def _state_of(context: ToolContext[Any]) -> str:
    """A digest of what the user gave to the run as its context; of one that cannot be printed nothing is known."""
    try:
        return digest_of(context.context)
    except Exception:
        return ""


def _carrying(body: Invoke, *, is_run: bool) -> Invoke:
    """What agentrun must hear of passes by the place where the SDK makes a message for the model of it.

    Of an agent's run that is also a model that cannot be reached, or what a tool raises: whether to try again is for
    agentrun to say. It is not remembered, so it cannot be told to the outer agent's model either.
    """

    async def carry(context: ToolContext[Any], arguments: str) -> Any:
        try:
            return await body(context, arguments)
        except AgentSignal as signal:
            raise Carried(signal) from signal
        except Exception as error:
            inner = wrapped_in(error) if isinstance(error, AgentsException) else error
            if inner is not None and is_run and current_run() is not None:
                raise Carried(inner) from error
            raise

    return carry


def wrapped_in(error: Exception) -> Exception | None:
    """What a tool or an MCP server raised, which the SDK wraps: what it was says whether to try again."""
    cause = error.__cause__
    if isinstance(error, UserError) and isinstance(cause, Exception) and not isinstance(cause, AgentsException):
        return cause
    return None


def _dump(output: Any, final: Any) -> dict[str, Any]:
    """A tool's result: what the model is told of it is the same when it is loaded.

    So is a result of the type of the agent's final output, `final`, which it may be (`tool_use_behavior`).
    """
    if isinstance(output, list | tuple) and output and all(type(one) in _PARTS for one in output):
        return {"parts": [_part(one) for one in output]}
    if type(output) in _PARTS:
        return {"part": _part(output)}
    if _is_json(output):
        return {"value": output}
    if isinstance(final, type) and type(output) is final:
        with suppress(PydanticSchemaGenerationError, PydanticSerializationError, ValidationError):
            fields = TypeAdapter(final).dump_python(output, mode="json", by_alias=True)
            if TypeAdapter(final).validate_python(fields) == output:
                return {"final": fields}
    return {"value": str(output)}


def _load(known: dict[str, Any], final: Any) -> Any:
    if "final" in known:
        with suppress(PydanticSchemaGenerationError, ValidationError):  # the agent may have changed since
            return TypeAdapter(final).validate_python(known["final"])
        return known["final"]
    if "parts" in known:
        return [_PARTS_BY_NAME[part["kind"]].model_validate(part["fields"]) for part in known["parts"]]
    if "part" in known:
        return _PARTS_BY_NAME[known["part"]["kind"]].model_validate(known["part"]["fields"])
    return known["value"]


def _part(part: Any) -> dict[str, Any]:
    return {"kind": type(part).__name__, "fields": part.model_dump(mode="json")}


def _is_json(value: Any) -> bool:
    """Whether its JSON form is all that it is: a tuple or a date would come back as something else."""
    if type(value) is dict:
        return all(type(key) is str and _is_json(inner) for key, inner in value.items())
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is int:
        return abs(value) < 1 << 53
    if type(value) is float:
        return value - value == 0
    return value is None or type(value) in (str, bool)


def _view(known: Any) -> str:
    if "value" in known or "final" in known:
        return _shown(known.get("value", known.get("final")))
    return "\n".join(_shown(part["fields"]) for part in known.get("parts") or [known["part"]])


def _shown(value: Any) -> str:
    """A result in words; of an image or a file, which may be all its bytes, only the kind."""
    if isinstance(value, list) and any(isinstance(one, dict) and "type" in one for one in value):
        return "\n".join(map(_shown, value))
    if isinstance(value, dict) and value.get("type") in ("text", "image", "file"):
        return str(value["text"]) if "text" in value else f"[{value['type']}]"
    return str(value)

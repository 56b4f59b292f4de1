"""Agents of pydantic-ai: each model request and each tool call is a step of the item.

    from agentrun.frameworks import pydantic_ai

    async def triage(item, ctx):
        result = await pydantic_ai.run(agent, item.text, ctx=ctx, deps=Deps(customer=item["customer"]))
        return result.output

An attempt runs the agent from the top. What it did before is answered from the item's memory, so that only unfinished
calls are made. This is built on `pydantic_ai.durable_exec`, pydantic-ai's own surface for engines such as this one. The
capabilities are given to a single run, so the user's agent is not changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_ai import BinaryContent, DeferredToolRequests
from pydantic_ai.agent import AbstractAgent, AgentRunResult
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.models import Model, infer_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import UsageLimits
from pydantic_core import to_jsonable_python

from agentrun.agents.context import Context
from agentrun.agents.prompts.attachment import read_attachment
from agentrun.errors import AgentError, Fail, Stop
from agentrun.frameworks.pydantic_ai.steps import ItemDurability, Run
from agentrun.item import Item

if TYPE_CHECKING:
    from agentrun.agents.adapters import AsyncAgent
    from agentrun.job.job import Job

__all__ = ["agent_of", "run"]
AnyAgent = AbstractAgent[Any, Any]
_THREADS_MOST = 40
"""As many sync tools at a time as pydantic-ai runs by itself."""


def agent_of(target: AnyAgent, job: Job) -> AsyncAgent:
    """The agent that runs `target` with the item as its prompt; its output is the item's."""
    deps_of = _deps_of(target)
    try:
        # What cannot be remembered is told before the first item: a toolset without an id, another durable engine.
        ItemDurability(None, name=_name_of(target)).for_agent(target)
    except UserError as error:
        raise AgentError(f"this agent of pydantic-ai cannot be run: {error}") from error
    _warn_of_unknown_toolsets(target)

    async def agent(item: Item, *, ctx: Context) -> Any:
        result = await run(target, _prompt_of(item), ctx=ctx, deps=deps_of(item, ctx))
        return to_jsonable_python(result.output, by_alias=False)

    return agent


async def run(
    agent: AnyAgent,
    prompt: str | Sequence[UserContent] | None = None,
    *,
    ctx: Context,
    name: str | None = None,
    deps: Any = None,
    model: Model | str | None = None,
    model_settings: ModelSettings | None = None,
    message_history: Sequence[ModelMessage] | None = None,
    usage_limits: UsageLimits | None = None,
    output_type: Any = None,
    instructions: str | None = None,
) -> AgentRunResult[Any]:
    """`agent.run(prompt, …)`, remembered by the item: finished model requests and tool calls are not made again.

    Tools that need approval ask a person, and so do calls that are made elsewhere (`CallDeferred`); the item waits for
    the answers. What model requests use is reported.

    `name` names the run among those of the attempt, where the agent's own name and their order do not: runs that are
    made side by side, in an order that changes. In a tool, `agentrun.current()` is the `ctx` to give. Toolsets and
    capabilities belong to the agent.
    """
    this = Run.of(ctx, name or _name_of(agent))
    models = {f"{this.name}: model of the run": model} if isinstance(model, Model) else None
    capabilities: list[AbstractCapability[Any]] = [
        ItemDurability(this, name=this.name, models=models),
        HandleDeferredToolCalls(this.resolve),
    ]
    try:
        # By itself it runs sync tools in threads of AnyIO, which the loop knows nothing of: they would outlive the
        # attempt. An executor that the agent names is used all the same, and the loop knows of that, too.
        with agent.using_thread_executor(_threads()):
            result: AgentRunResult[Any] = await agent.run(
                prompt,
                deps=deps,
                model=model,
                model_settings=model_settings,
                message_history=message_history,
                usage_limits=usage_limits,
                output_type=output_type,
                instructions=instructions,
                capabilities=capabilities,
                infer_name=False,  # it would name the user's agent after our own variable
            )
    except (UserError, ImportError) as error:
        if _cannot_be_made(model or agent.model):
            # For want of a key above all: that is so for every item.
            raise Stop(str(error)) from error
        raise
    if isinstance(result.output, DeferredToolRequests):
        raise Fail("the agent ended with tool calls that nobody answered; remove what resolves only some of them")
    return result


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS_MOST, thread_name_prefix="agentrun-tool")


def _cannot_be_made(model: Model | str | None) -> bool:
    """Whether it is a model's name, and there is no model for it here."""
    try:
        if isinstance(model, str):
            infer_model(model)
    except (UserError, ImportError):
        return True
    return False


def _name_of(agent: AnyAgent) -> str:
    return agent.name or "agent"


def _prompt_of(item: Item) -> str | list[UserContent]:
    if item.path is None:
        return item.text
    attached = read_attachment(item.path)
    return attached if isinstance(attached, str) else [BinaryContent(attached[0], media_type=attached[1])]


def _deps_of(agent: AnyAgent) -> Callable[[Item, Context], Any]:
    """The dependencies of the agent for an item: none, or the context or the item if it asks for one of these."""
    kind = agent.deps_type
    if kind is Context:
        return lambda item, ctx: ctx
    if kind is Item:
        return lambda item, ctx: item
    if kind in (object, type(None)) or not isinstance(kind, type):
        return lambda item, ctx: None
    own = "`await agentrun.frameworks.pydantic_ai.run(agent, item.text, ctx=ctx, deps=…)`"
    raise AgentError(
        f"this agent of pydantic-ai needs deps ({kind.__qualname__}), which only your own code can make: write "
        f"`async def triage(item, ctx)` that calls {own}, and give that function as the agent"
    )


def _warn_of_unknown_toolsets(agent: AnyAgent) -> None:
    """pydantic-ai makes the calls of its own toolsets durable, and cannot do so with toolsets that others wrote."""

    def look(toolset: AbstractToolset[Any]) -> None:
        if not type(toolset).__module__.startswith("pydantic_ai."):
            text = "%s: calls of its tools are not remembered, and are made again after a crash; use a FunctionToolset"
            logging.getLogger("agentrun").warning(text, toolset.label)

    for toolset in agent.toolsets:
        toolset.apply(look)

"""Running an agent for an item."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from agents import Agent, RunConfig, RunErrorHandlers, RunHooks, RunResult, RunState
from agents.exceptions import UserError
from agents.run_config import DEFAULT_MAX_TURNS
from pydantic_core import to_jsonable_python

from agentrun.agents.context import Context
from agentrun.errors import AgentError
from agentrun.frameworks.openai_agents.approvals import decide
from agentrun.frameworks.openai_agents.copies import Copies, config_for
from agentrun.frameworks.openai_agents.runner import Input, installed_runner
from agentrun.frameworks.openai_agents.scope import Carried, Run, place_in
from agentrun.frameworks.openai_agents.servers import Servers
from agentrun.frameworks.openai_agents.tools import wrapped_in
from agentrun.item import Item

if TYPE_CHECKING:
    from agentrun.agents.adapters import AsyncAgent
    from agentrun.job.job import Job


async def run(
    agent: Agent[Any],
    input: Input,
    *,
    ctx: Context,
    context: Any = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
    hooks: RunHooks[Any] | None = None,
    run_config: RunConfig | None = None,
    error_handlers: RunErrorHandlers[Any] | None = None,
    previous_response_id: str | None = None,
    auto_previous_response_id: bool = False,
    conversation_id: str | None = None,
) -> RunResult:
    """`Runner.run`, with every response of a model and every call of a function tool remembered for the item.

    A call that needs an approval is a question to a person: the item is parked until it is answered. Each attempt goes
    through the run from its start, and what is remembered is not done again. Hooks, guardrails, `on_handoff` and
    instructions that are functions are called each time; what tools change in `context` is not remembered. There is no
    `session`: an attempt that goes through the run again would add to it again. MCP servers must be connected.
    """
    options = {
        "context": context,
        "previous_response_id": previous_response_id,
        "auto_previous_response_id": auto_previous_response_id,
        "conversation_id": conversation_id,
    }
    again = {"max_turns": max_turns, "hooks": hooks, "error_handlers": error_handlers}
    return await _run(agent, input, ctx, run_config, None, options, again)


def agent_of(target: Any, job: Job) -> AsyncAgent:
    """The agent for items: each one's text is the input, and the final output is the output. See `run`.

    MCP servers are connected when they are first needed, and closed at the end.
    """
    if not isinstance(target, Agent):
        kind = type(target).__name__
        raise AgentError(f"it is a {kind}, which does not run to an end by itself; give an agents.Agent")
    servers = Servers()

    async def call(item: Item, *, ctx: Context) -> Any:
        result = await _run(target, item.text, ctx, None, servers, {}, {})
        return _plain(result.final_output)

    return call


async def _run(
    agent: Agent[Any],
    input: Input,
    ctx: Context,
    given: RunConfig | None,
    servers: Servers | None,
    options: dict[str, Any],
    again: dict[str, Any],
) -> RunResult:
    """`options` are for the start alone, `again` also for going on when people have decided."""
    place = place_in(ctx)
    run = Run(place, place.next_prefix(), Copies(), servers)
    config = _traced(config_for(given), run)
    try:
        result = await installed_runner().run_as(run, agent, input, config=config, **again, **options)
        while result.interruptions:
            state: RunState[Any] = await decide(result, run)
            result = await installed_runner().run_as(run, agent, state, config=config, **again)
        return result
    except Carried as carried:
        error: Exception = carried.error
    except UserError as wrapper:
        error = wrapped_in(wrapper) or wrapper
    finally:
        if given is None:
            await config.model_provider.aclose()
    raise error


def _traced(config: RunConfig, run: Run) -> RunConfig:
    """With the item's trace and group, the same in every attempt, unless the user chose others."""
    trace = f"trace_{UUID(run.ctx.key(f'trace {run.prefix}')).hex}"
    return replace(config, trace_id=config.trace_id or trace, group_id=config.group_id or run.ctx.key())


def _plain(output: Any) -> Any:
    """The final output in its JSON form: of models, dataclasses, dates, and whatever holds them."""
    try:
        return to_jsonable_python(output)
    except ValueError:
        return output  # whoever records it says what JSON cannot hold

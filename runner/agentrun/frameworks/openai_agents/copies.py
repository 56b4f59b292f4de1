"""Copies of the user's agents, whose tools, models and guardrails know the run. The user's objects stay as they are."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import wraps
from inspect import isawaitable
from typing import Any, TypeVar, cast

from agents import Agent, Handoff, InputGuardrail, Model, OutputGuardrail, RunConfig, RunContextWrapper, Tool

from agentrun.frameworks.openai_agents import model, tools
from agentrun.frameworks.openai_agents.scope import current_run, working_on

_classes: dict[type, type[Agent[Any]]] = {}
_Guardrail = TypeVar("_Guardrail", InputGuardrail[Any], OutputGuardrail[Any])


class Copies:
    """The copies of one run and of all runs within it: one for each agent, however often it is reached."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        """By the agent's id, which nothing else can have as long as the agent is here."""

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        """The copy of an agent and of whatever it hands over to; a copy's is itself."""
        if isinstance(agent, _ItemAgent):
            return agent
        if id(agent) not in self._of:
            new = copy.copy(agent)
            self._of[id(agent)] = agent, new
            new.__class__ = _item_class(type(agent))
            new.tools = [tools.remembering(tool) for tool in agent.tools]
            if isinstance(agent.model, Model):
                new.model = model.remembering(agent.model)
            new.input_guardrails = _named(agent.input_guardrails, "guardrail")
            new.output_guardrails = _named(agent.output_guardrails, "guardrail")
            new.handoffs = [self.of(to) if isinstance(to, Agent) else self._handoff(to) for to in agent.handoffs]
        return self._of[id(agent)][1]

    def _handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        new = copy.copy(handoff)

        @wraps(handoff.on_invoke_handoff)
        async def invoke(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            return self.of(await handoff.on_invoke_handoff(context, arguments))

        new.on_invoke_handoff = invoke
        return new


class _ItemAgent:
    """Mark of a copy's class."""


def _item_class(cls: type[Agent[Any]]) -> type[Agent[Any]]:
    """The agent's class, with tools that are remembered wherever they come from: MCP servers, hooks."""
    if cls in _classes:
        return _classes[cls]

    async def get_all_tools(self: Agent[Any], run_context: RunContextWrapper[Any]) -> list[Tool]:
        run = current_run()
        if run is not None:
            run.agent = self.name  # the SDK asks for the tools when an agent's turn begins
            if run.servers is not None:
                await run.servers.connect(self.mcp_servers)
        own = {id(tool) for tool in self.tools}
        found = await cls.get_all_tools(self, run_context)
        if run is not None:
            for tool in found:
                tools.warn_of(tool, run)
        return [tool if id(tool) in own else tools.remembering(tool) for tool in found]

    made = type(cls.__name__, (cls, _ItemAgent), {"get_all_tools": get_all_tools, "__module__": cls.__module__})
    _classes[cls] = cast(type[Agent[Any]], made)
    return _classes[cls]


def _named(guardrails: Sequence[_Guardrail], kind: str) -> list[_Guardrail]:
    """Whatever agents a guardrail runs are named after it: it may be at work beside others, and beside its agent."""
    seen: Counter[str] = Counter()
    made = []
    for guardrail in guardrails:
        name = f"{kind} {guardrail.get_name()}"
        seen[name] += 1  # those that one function makes have one name
        made.append(_inside(guardrail, name if seen[name] == 1 else f"{name}~{seen[name]}"))
    return made


def _inside(guardrail: _Guardrail, name: str) -> _Guardrail:
    check = cast(Callable[..., Any], guardrail.guardrail_function)
    if getattr(check, "_agentrun_named", False):
        return guardrail

    @wraps(check)
    async def named(*args: Any) -> Any:
        run = current_run()
        if run is None:
            return await _awaited(check(*args))
        with working_on(run.inside(name)):
            return await _awaited(check(*args))

    named._agentrun_named = True  # type: ignore[attr-defined]
    return replace(guardrail, guardrail_function=named)


async def _awaited(value: Awaitable[Any] | Any) -> Any:
    return await value if isawaitable(value) else value


def config_for(given: RunConfig | None) -> RunConfig:
    """The configuration of a run, with models and guardrails that know the run."""
    config = RunConfig() if given is None else given
    provider = config.model_provider
    return replace(
        config,
        model_provider=provider if isinstance(provider, model.ItemProvider) else model.ItemProvider(provider),
        model=model.remembering(config.model) if isinstance(config.model, Model) else config.model,
        input_guardrails=config.input_guardrails and _named(config.input_guardrails, "run's guardrail"),
        output_guardrails=config.output_guardrails and _named(config.output_guardrails, "run's guardrail"),
    )

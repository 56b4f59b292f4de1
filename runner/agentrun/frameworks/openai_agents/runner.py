"""The SDK's runner, so that runs within runs are remembered, too: agents that are tools, and those of guardrails."""

from __future__ import annotations

from typing import Any

from agents import Agent, RunConfig, RunResult, RunResultStreaming, RunState, TResponseInputItem

from agentrun.frameworks.openai_agents.copies import config_for
from agentrun.frameworks.openai_agents.internals import (
    AgentRunner,
    coerce_config,
    get_default_agent_runner,
    set_default_agent_runner,
)
from agentrun.frameworks.openai_agents.scope import Run, current_run, working_on

Input = str | list[TResponseInputItem]


class ItemRunner(AgentRunner):
    """Runs agents as the runner before it did. What a remembered run starts is remembered as well."""

    def __init__(self, inner: AgentRunner) -> None:
        self._inner = inner

    async def run(self, starting_agent: Agent[Any], input: Input | RunState[Any], **options: Any) -> RunResult:
        outer = current_run()
        if outer is None:
            return await self._inner.run(starting_agent, input, **options)
        given = options.pop("run_config", None)
        config = config_for(coerce_config(given))
        run = outer.begin_nested()
        try:
            result = await self.run_as(run, starting_agent, input, config=config, **options)
            if result.interruptions:
                run.within.append((result, run))
            return result
        finally:
            if given is None:
                await config.model_provider.aclose()

    async def run_as(
        self, run: Run, starting_agent: Agent[Any], input: Input | RunState[Any], *, config: RunConfig, **options: Any
    ) -> RunResult:
        """Run the agent, with a configuration of `config_for`, as this run."""
        with working_on(run):
            return await self._inner.run(run.copies.of(starting_agent), input, run_config=config, **options)

    def run_sync(self, starting_agent: Agent[Any], input: Input | RunState[Any], **options: Any) -> RunResult:
        if current_run() is None:
            return self._inner.run_sync(starting_agent, input, **options)
        return super().run_sync(starting_agent, input, **options)

    def run_streamed(
        self, starting_agent: Agent[Any], input: Input | RunState[Any], **options: Any
    ) -> RunResultStreaming:
        outer = current_run()
        if outer is None:
            return self._inner.run_streamed(starting_agent, input, **options)
        options["run_config"] = config_for(coerce_config(options.get("run_config")))
        run = outer.begin_nested()
        with working_on(run):  # the task that it starts stays in it
            result = self._inner.run_streamed(run.copies.of(starting_agent), input, **options)
        run.within.append((result, run))  # whether it is interrupted is known at its end
        return result


def installed_runner() -> ItemRunner:
    """Ours, in the place of the SDK's or of the user's own."""
    runner = get_default_agent_runner()
    if not isinstance(runner, ItemRunner):
        runner = ItemRunner(runner)
        set_default_agent_runner(runner)
    return runner

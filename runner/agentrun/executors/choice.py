"""Which executor runs an agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.executors.port import Executor
from agentrun.system.guardian import Guardian

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


def open_executor(
    job: Job,
    agent: Agent,
    *,
    guardian: Guardian | None,
    environ: Mapping[str, str],
    folder: Path | None = None,
) -> Executor:
    """`environ` comes on top of the runner's own environment, in workers and programs; agents in the runner's
    process see only what is in `os.environ`. `folder` is the job's, for the socket of its programs; without one
    that is in a temporary folder."""
    if agent.kind == "command" and job.serve:
        from agentrun.executors.programs.serve import ServingExecutor

        return ServingExecutor(job, agent, guardian=guardian, environ=environ)
    if agent.kind == "command":
        from agentrun.executors.programs.once import CommandExecutor

        return CommandExecutor(job, agent, guardian=guardian, environ=environ, folder=folder)
    if agent.isolation == "process":
        from agentrun.executors.workers.executor import ProcessExecutor

        return ProcessExecutor(job, agent, guardian=guardian, environ=environ)
    if agent.isolation == "thread":
        from agentrun.executors.threads import ThreadExecutor

        return ThreadExecutor(job, agent)
    from agentrun.executors.loop import InLoopExecutor

    return InLoopExecutor(job, agent)

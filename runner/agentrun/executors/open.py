"""Which executor runs an agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.executors.guardian import Guardian
from agentrun.executors.port import Executor

if TYPE_CHECKING:
    from agentrun.agents import Agent
    from agentrun.job import Job


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
        from agentrun.executors.serving import ServingExecutor

        return ServingExecutor(job, agent, guardian=guardian, environ=environ)
    if agent.kind == "command":
        from agentrun.executors.commands import CommandExecutor

        return CommandExecutor(job, agent, guardian=guardian, environ=environ, folder=folder)
    if agent.isolation == "process":
        from agentrun.executors.processes import ProcessExecutor

        return ProcessExecutor(job, agent, guardian=guardian, environ=environ)
    if agent.isolation == "thread":
        from agentrun.executors.threads import ThreadExecutor

        return ThreadExecutor(job, agent)
    from agentrun.executors.inloop import InLoopExecutor

    return InLoopExecutor(job, agent)

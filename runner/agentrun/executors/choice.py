"""The choice of an executor: a list of kinds, of which the first that fits an agent runs it.

Another executor is one more `ExecutorKind`, put before those that would also fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentrun.executors.port import Executor, Setting
from agentrun.system.guardian import Guardian

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """A way to run agents. `open` imports what it needs, so that a launch loads only the kind it uses."""

    name: str
    fits: Callable[[Job, Agent], bool]
    open: Callable[[Job, Agent, Setting], Executor]


def _open_serve(job: Job, agent: Agent, setting: Setting) -> Executor:
    from agentrun.executors.programs.serve import ServeExecutor

    return ServeExecutor(job, agent, setting)


def _open_programs(job: Job, agent: Agent, setting: Setting) -> Executor:
    from agentrun.executors.programs.once import ProgramExecutor

    return ProgramExecutor(job, agent, setting)


def _open_workers(job: Job, agent: Agent, setting: Setting) -> Executor:
    from agentrun.executors.workers.executor import WorkerExecutor

    return WorkerExecutor(job, agent, setting)


def _open_threads(job: Job, agent: Agent, setting: Setting) -> Executor:
    from agentrun.executors.threads import ThreadExecutor

    return ThreadExecutor(job, agent)


def _open_loop(job: Job, agent: Agent, setting: Setting) -> Executor:
    from agentrun.executors.loop import LoopExecutor

    return LoopExecutor(job, agent)


def _open_cluster(job: Job, agent: Agent, setting: Setting) -> Executor:
    from agentrun.executors.cluster.engines import open_engine
    from agentrun.executors.cluster.executor import ClusterExecutor

    return ClusterExecutor(job, agent, setting, open_engine(job))


EXECUTORS: Sequence[ExecutorKind] = (
    ExecutorKind("cluster", lambda job, agent: job.engine is not None, _open_cluster),
    ExecutorKind("serve", lambda job, agent: agent.kind == "command" and job.serve, _open_serve),
    ExecutorKind("programs", lambda job, agent: agent.kind == "command", _open_programs),
    ExecutorKind("workers", lambda job, agent: agent.isolation == "process", _open_workers),
    ExecutorKind("threads", lambda job, agent: agent.isolation == "thread", _open_threads),
    ExecutorKind("loop", lambda job, agent: agent.isolation == "loop", _open_loop),
)


def choose(job: Job, agent: Agent, kinds: Sequence[ExecutorKind] = EXECUTORS) -> ExecutorKind:
    """The first kind that fits."""
    for kind in kinds:
        if kind.fits(job, agent):
            return kind
    raise LookupError(f"no executor fits the agent (kind {agent.kind}, isolation {agent.isolation})")


def open_executor(
    job: Job,
    agent: Agent,
    *,
    guardian: Guardian | None,
    environ: Mapping[str, str],
    folder: Path | None = None,
    kinds: Sequence[ExecutorKind] = EXECUTORS,
) -> Executor:
    """The executor for an agent, not started yet; see `Setting` for the arguments."""
    return choose(job, agent, kinds).open(job, agent, Setting(guardian, environ, folder))

"""A bench for attempts on other machines: real hosts beside this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.agents.attempt import Attempt, Outcome
from agentrun.checkpoint.checkpoint import EngineUse
from agentrun.executors.cluster.executor import ClusterExecutor
from agentrun.executors.port import Joined, Setting
from agentrun.job.engine import EngineSpec
from agentrun.system.guardian import LAUNCH_VARIABLE, carries, list_processes
from cluster.here import HereEngine
from unit.executors.conftest import Bench

LEASE_SECONDS = 2.0


@dataclass
class Cluster:
    """An executor on an engine for tests, and what it told the launch."""

    executor: ClusterExecutor
    engine: Any
    use: EngineUse
    warnings: list[str] = field(default_factory=list)
    commits: list[list[str]] = field(default_factory=list)
    """The hosts that each checkpoint named."""

    def carriers(self) -> set[int]:
        """The processes that carry the mark of the run."""
        return {pid for pid in list_processes() if carries(pid, (LAUNCH_VARIABLE, self.use.mark))}


class ClusterBench:
    """Attempts of one agent, on hosts."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.folder = bench.folder

    @contextlib.asynccontextmanager
    async def cluster(
        self,
        source: str = "",
        *,
        engine: Any = None,
        concurrency: int = 1,
        sees_folder: bool = True,
        environ: dict[str, str] | None = None,
        mark: str = "",
        hosts: list[str] | None = None,
        starts: bool = True,
        **changes: Any,
    ) -> AsyncIterator[Cluster]:
        """For `def agent(…)` in the source, or with `command` and the like for other agents."""
        if source:
            (self.folder / "cluster_agent.py").write_text(dedent(source))
            changes.setdefault("agent", "cluster_agent.py:agent")
        spec = EngineSpec(on="here", kind="dask", lease_seconds=LEASE_SECONDS, **changes.pop("engine_options", {}))
        # As if all hosts were on another machine.
        limits = {"own_sight": "another", **changes.pop("limits", {})}
        job = self.bench.job(engine=spec, concurrency=concurrency, **changes)
        agent = load_agent(job)
        engine = engine or HereEngine()
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        executor = ClusterExecutor(job, agent, Setting(None, environ or {}, state), engine, **limits)
        use = EngineUse(mark=mark or os.urandom(8).hex(), lease_seconds=LEASE_SECONDS, hosts=hosts or [])
        made = Cluster(executor, engine, use)

        async def commit() -> None:
            await asyncio.sleep(0)
            made.commits.append(list(use.hosts))

        executor.join(Joined(use, commit, lambda: None, made.warnings.append))
        try:
            await executor.connect()
            if starts:
                await executor.start()
                if not sees_folder:
                    (state / "seen-by").unlink()
            yield made
        finally:
            await executor.close()

    def attempt(self, index: int = 0, **changes: Any) -> Attempt:
        path = self.folder / f"slot-{index}.log"
        return self.bench.attempt(item=self.bench.item(index, {"n": index}), log_path=path, slot=index, **changes)

    def output(self, outcome: Outcome) -> Any:
        return self.bench.output(outcome)

    def run(self, scenario: Any) -> None:
        self.bench.run(scenario)

    async def eventually(self, condition: Callable[[], bool], what: str) -> None:
        await self.bench.eventually(condition, what)


@pytest.fixture
def cluster(bench: Bench) -> ClusterBench:
    return ClusterBench(bench)


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""

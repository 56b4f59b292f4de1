"""Which executor runs an agent; and how another one is added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentrun.agents.agent import Agent
from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.executors.choice import EXECUTORS, ExecutorKind, choose, open_executor
from agentrun.executors.port import Executor, Setting
from agentrun.job.job import Job

if TYPE_CHECKING:
    from unit.executors.conftest import Bench


def agent(kind: Any = "function", isolation: Any = "process", argv: tuple[str, ...] | None = None) -> Agent:
    return Agent(
        kind=kind,
        is_async=isolation == "loop",
        wants_ctx=False,
        target=print,
        reference="a.py:f",
        fingerprint="",
        isolation=isolation,
        argv=argv,
    )


@pytest.mark.parametrize(
    ("given", "serve", "name"),
    [
        (agent("command", argv=("cat",)), True, "serve"),
        (agent("command", argv=("cat",)), False, "programs"),
        (agent(isolation="process"), False, "workers"),
        (agent(isolation="thread"), False, "threads"),
        (agent("class", isolation="loop"), False, "loop"),
    ],
)
def test_the_first_kind_that_fits_runs_an_agent(bench: Bench, given: Agent, serve: bool, name: str) -> None:
    assert choose(bench.job(serve=serve), given).name == name


def test_another_executor_is_one_more_entry(bench: Bench) -> None:
    class Elsewhere:
        def __init__(self, setting: Setting) -> None:
            self.setting = setting

        async def start(self) -> None: ...

        async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
            return Outcome("done")

        async def rest(self) -> None: ...

        async def close(self) -> None: ...

    def open_elsewhere(job: Job, agent: Agent, setting: Setting) -> Executor:
        return Elsewhere(setting)

    elsewhere = ExecutorKind("elsewhere", lambda job, agent: agent.isolation == "process", open_elsewhere)
    kinds = [elsewhere, *EXECUTORS]
    opened = open_executor(bench.job(), agent(), guardian=None, environ={"A": "1"}, folder=bench.folder, kinds=kinds)
    assert isinstance(opened, Elsewhere)
    assert opened.setting == Setting(None, {"A": "1"}, bench.folder)
    assert choose(bench.job(), agent("function", "loop"), kinds).name == "loop"


def test_an_agent_that_nothing_fits_is_an_error(bench: Bench) -> None:
    with pytest.raises(LookupError, match="no executor fits the agent"):
        choose(bench.job(), agent(), [])

"""Trying a program: by the executor that a launch would use, with its socket and folders, but without state."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.executors.guardian import Guardian
from agentrun.executors.open import open_executor
from agentrun.executors.port import Attempt, Executor, Outcome

if TYPE_CHECKING:
    from agentrun.agents import Agent
    from agentrun.job import Job

_STDERR = 2
_LOOK_SECONDS = 0.05


class Rehearsal:
    """`take` answers the program's messages. What it prints to standard error goes to ours."""

    def __init__(self, job: Job, agent: Agent, *, take: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._job, self._agent, self._take = job, agent, take
        self._runner = asyncio.Runner()
        self._guardian: Guardian | None = None
        self._executor: Executor | None = None

    def run(self, attempt: Attempt) -> Outcome:
        return self._runner.run(self._run(replace(attempt, log_path=Path(attempt.folder, "program.log"))))

    def close(self) -> None:
        try:
            if self._executor is not None:
                self._runner.run(self._executor.close())
        finally:
            self._runner.close()
            if self._guardian is not None:
                self._guardian.close()

    async def _run(self, attempt: Attempt) -> Outcome:
        if self._executor is None:
            self._guardian = Guardian.start(None, secrets.token_hex(8))
            executor = open_executor(self._job, self._agent, guardian=self._guardian, environ={})
            await executor.start()
            self._executor = executor

        async def channel(message: dict[str, Any]) -> dict[str, Any]:
            return self._take(message)

        if attempt.log_path.exists():
            os.truncate(attempt.log_path, 0)  # of the item before; a program that serves has it open
        following = asyncio.ensure_future(_follow(attempt.log_path))
        try:
            return await self._executor.run(attempt, channel)
        finally:
            following.cancel()
            await asyncio.wait({following})


async def _follow(path: Path) -> None:
    """Show what is written to a log, also what is there when this is cancelled."""
    shown = 0
    while True:
        try:
            await asyncio.sleep(_LOOK_SECONDS)
        finally:
            shown += _show(path, shown)


def _show(path: Path, shown: int) -> int:
    """How much more of it was shown."""
    try:
        with path.open("rb") as file:
            file.seek(shown)
            said = file.read()
        rest = memoryview(said)
        while rest:
            rest = rest[os.write(_STDERR, rest) :]
    except OSError:  # not there yet; or nobody reads what we say
        return 0
    return len(said)

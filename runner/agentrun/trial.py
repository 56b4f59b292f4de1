"""Trying an agent: attempts in this thread, without state, so that a debugger works."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.context import Context
from agentrun.agents.exceptions import user_traceback
from agentrun.errors import AgentError
from agentrun.executors.calling import close_agent, perform, perform_async
from agentrun.executors.choice import open_executor
from agentrun.executors.port import Executor
from agentrun.system.guardian import Guardian

if TYPE_CHECKING:
    import tempfile

    from agentrun.agents.agent import Agent
    from agentrun.item import Item
    from agentrun.job.job import Job


class Trial:
    """Each item is attempted once, without a timeout: a function is called, a program is waited for.

    `say` is given what agents log; prints go where they always go.
    """

    def __init__(self, job: Job, agent: Agent, *, say: Callable[[str], None]) -> None:
        self._job, self._agent, self._say = job, agent, say
        self._carry: Any = None
        self._runner: asyncio.Runner | None = None
        self._target: Any = agent.target
        self._scratch: tempfile.TemporaryDirectory[str]
        self._programs: Rehearsal | None = None

    def __enter__(self) -> Trial:
        import tempfile

        self._scratch = tempfile.TemporaryDirectory(prefix="agentrun-try-")
        if self._agent.kind == "command":
            self._programs = Rehearsal(self._job, self._agent, take=self._take)
        if self._agent.is_async:
            self._runner = asyncio.Runner()
        if self._agent.kind == "class":
            try:
                self._target = self._agent.target()
            except Exception as error:
                message = f"{self._job.agent}: it cannot be made: {type(error).__name__}: {error}"
                raise AgentError(message, traceback=user_traceback(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._programs is not None:
            self._programs.close()
        self._scratch.cleanup()
        if self._agent.kind == "class":
            run = self._runner.run if self._runner is not None else asyncio.run
            run(close_agent(self._target))
        if self._runner is not None:
            self._runner.close()

    def run(self, item: Item) -> Outcome:
        attempt = Attempt(
            item=item,
            generation=0,
            launch=0,
            number=1,
            run_id="try",
            params=self._job.params,
            carry=self._carry,
            timeout_seconds=None,
            log_path=Path(os.devnull),
            folder=self._scratch.name,
        )
        if self._programs is not None:
            return self._programs.run(attempt)
        link = (_Link if self._runner is None else _AsyncLink)(self._say, self._take)
        context = Context(attempt, link, carries=self._job.carry) if self._agent.wants_ctx else None
        if self._runner is None:
            return perform(self._target, item, context, link)
        return self._runner.run(perform_async(self._target, item, context, link))

    def _take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Without state nothing is remembered, and a question ends the attempt."""
        kind = message.get("type")
        if kind == "carry":
            self._carry = message["value"]
        elif kind in ("log", "progress"):
            self._say(str(message.get("text", "")))
        elif kind == "step_get":
            self._say(f"[step {message['name']}]")
            return {"n": 0, "found": False}
        elif kind == "usage":
            used = ", ".join(f"{name} {value}" for name, value in message.items() if value and name != "type")
            self._say(f"[used: {used}]")
        elif kind == "ask":
            self._say(f"[would ask, and wait for the answer: {message['question']}]")
            return {"park": True}
        return {}


class _Link:
    """The attempt's end of the channel."""

    awaits = False

    def __init__(self, say: Callable[[str], None], take: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._take = take
        self._say = say

    def tell(self, message: dict[str, Any]) -> None:
        self._take(message)

    def log(self, text: str) -> None:
        self._say(text.rstrip("\n"))

    def call(self, message: dict[str, Any]) -> Any:
        return self._take(message)


class _AsyncLink(_Link):
    awaits = True

    async def call(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._take(message)


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

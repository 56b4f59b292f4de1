"""Trying an agent: attempts in this thread, without state, so that a debugger works."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from agentrun.agents.attempt import Attempt, Outcome
from agentrun.agents.context import LazyContext
from agentrun.agents.exceptions import user_traceback
from agentrun.agents.messages import (
    Ask,
    Carry,
    EntriesGet,
    KnownEntries,
    KnownStep,
    Log,
    Message,
    Park,
    Progress,
    Received,
    Reply,
    StepGet,
    Used,
    Warn,
)
from agentrun.errors import AgentError
from agentrun.executors.calling import close_agent, perform, perform_async
from agentrun.executors.choice import open_executor
from agentrun.executors.local import is_on_loop
from agentrun.executors.port import Executor
from agentrun.system.guardian import Guardian

if TYPE_CHECKING:
    import tempfile

    from agentrun.agents.agent import Agent
    from agentrun.item import Item
    from agentrun.job.job import Job


class Trial:
    """Attempts each item once, without a timeout: a function is called, a program is run.

    `say` gets what agents log; prints go where they always go. All of it happens on this machine: a cluster of the
    job is not used.
    """

    def __init__(self, job: Job, agent: Agent, *, say: Callable[[str], None]) -> None:
        self._job, self._agent, self._say = replaced(job, engine=None), agent, say
        self._carry: Any = None
        self._runner: asyncio.Runner | None = None
        self._target: Any = agent.target
        self._scratch: tempfile.TemporaryDirectory[str]
        self._programs: ProgramTrial | None = None

    def __enter__(self) -> Trial:
        import tempfile

        self._scratch = tempfile.TemporaryDirectory(prefix="agentrun-try-")
        if self._agent.kind == "command":
            self._programs = ProgramTrial(self._job, self._agent, answer=self._answer)
        if self._agent.is_async:
            self._runner = asyncio.Runner()
        if self._agent.kind == "class":
            try:
                self._target = self._agent.target()
            except Exception as error:
                message = f"{self._job.agent}: it cannot be created: {type(error).__name__}: {error}"
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
            series="try",
            params=self._job.params,
            carry=self._carry,
            timeout_seconds=None,
            log_path=Path(os.devnull),
            folder=self._scratch.name,
        )
        if self._programs is not None:
            return self._programs.run(attempt)
        end = (TrialEnd if self._runner is None else AsyncTrialEnd)(self._say, self._answer)
        context, wants_ctx = LazyContext(attempt, end, self._job.carry), self._agent.wants_ctx
        if self._runner is None:
            return perform(self._target, item, context, end, wants_ctx=wants_ctx)
        return self._runner.run(perform_async(self._target, item, context, end, wants_ctx=wants_ctx))

    def _answer(self, message: Message) -> Reply:
        """The runner end: without state nothing is remembered, and a question ends the attempt."""
        match message:
            case Carry(value):
                self._carry = value
            case Log(text) | Progress(text) | Warn(text):
                self._say(text)
            case StepGet(name):
                self._say(f"[step {name}]")
                return KnownStep(0, found=False)
            case EntriesGet():
                return KnownEntries([])
            case Used(reported):
                used = ", ".join(f"{name} {value}" for name, value in asdict(reported).items() if value)
                self._say(f"[used: {used}]")
            case Ask(question):
                self._say(f"[would ask, and wait for the answer: {question}]")
                return Park()
        return Received()


class TrialEnd:
    """The agent end of a trial: everything is answered at once, in the same thread."""

    @property
    def awaits(self) -> bool:
        return False

    def __init__(self, say: Callable[[str], None], answer: Callable[[Message], Reply]) -> None:
        self._answer = answer
        self._say = say

    def log(self, text: str) -> None:
        self._say(text.rstrip("\n"))

    def send(self, message: Message) -> None:
        self._answer(message)

    def call(self, message: Message) -> Any:
        return self._answer(message)


class AsyncTrialEnd(TrialEnd):
    """The same for an async agent, and for the sync functions that it runs in threads."""

    @property
    def awaits(self) -> bool:
        return is_on_loop()

    def call(self, message: Message) -> Any:
        return self._answer_later(message) if self.awaits else self._answer(message)

    async def _answer_later(self, message: Message) -> Reply:
        return self._answer(message)


_STDERR = 2
_LOOK_SECONDS = 0.05


class ProgramTrial:
    """Runs programs. `answer` is the runner end; what a program prints to standard error goes to ours."""

    def __init__(self, job: Job, agent: Agent, *, answer: Callable[[Message], Reply]) -> None:
        self._job, self._agent, self._answer = job, agent, answer
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

        async def channel(message: Message) -> Reply:
            return self._answer(message)

        if attempt.log_path.exists():
            os.truncate(attempt.log_path, 0)  # the previous item's; a program that serves has it open
        following = asyncio.ensure_future(_follow(attempt.log_path))
        try:
            return await self._executor.run(attempt, channel)
        finally:
            following.cancel()
            await asyncio.wait({following})


async def _follow(path: Path) -> None:
    """Show what is written to a log, until cancelled; what is in it by then is shown, too."""
    shown = 0
    while True:
        try:
            await asyncio.sleep(_LOOK_SECONDS)
        finally:
            shown += _show(path, shown)


def _show(path: Path, shown: int) -> int:
    """Show the rest of a log, and return how many bytes that was."""
    try:
        with path.open("rb") as file:
            file.seek(shown)
            said = file.read()
        rest = memoryview(said)
        while rest:
            rest = rest[os.write(_STDERR, rest) :]
    except OSError:  # the log is not there yet, or nobody reads our standard error
        return 0
    return len(said)

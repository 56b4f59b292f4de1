"""Trying an agent: attempts in this thread, without state, so that a debugger works."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.context import Context
from agentrun.errors import AgentError
from agentrun.executors.calls import close_agent, perform, perform_async
from agentrun.executors.facts import user_traceback
from agentrun.executors.port import Attempt, Outcome
from agentrun.failure import Failure

if TYPE_CHECKING:
    import asyncio
    import tempfile

    from agentrun.agents import Agent
    from agentrun.item import Item
    from agentrun.job import Job


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

    def __enter__(self) -> Trial:
        import tempfile

        self._scratch = tempfile.TemporaryDirectory(prefix="agentrun-try-")
        if self._agent.is_async:
            import asyncio

            self._runner = asyncio.Runner()
        if self._agent.kind == "class":
            try:
                self._target = self._agent.target()
            except Exception as error:
                message = f"{self._job.agent}: it cannot be made: {type(error).__name__}: {error}"
                raise AgentError(message, traceback=user_traceback(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()
        if self._agent.kind == "class":
            import asyncio

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
            work=Path(self._scratch.name) / str(item.index),
        )
        if self._agent.kind == "command":
            return self._run_program(attempt)
        wants_ctx, carries = self._agent.wants_ctx, self._job.carry
        if self._runner is None:
            link = _Link(self._say, self._take)
            return perform(self._target, Context(attempt, link, carries=carries), link, wants_ctx=wants_ctx)
        link = _AsyncLink(self._say, self._take)
        context = Context(attempt, link, carries=carries)
        return self._runner.run(perform_async(self._target, context, link, wants_ctx=wants_ctx))

    def _take(self, message: dict[str, Any]) -> dict[str, Any]:
        """Without state nothing is remembered, and a question ends the attempt."""
        kind = message.get("type")
        if kind == "carry":
            self._carry = message["value"]
        elif kind == "progress":
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

    def _run_program(self, attempt: Attempt) -> Outcome:
        import json
        import subprocess

        from agentrun.executors.programs import SKIPPED, describe_item, parse_json, variables
        from agentrun.jsontext import encode
        from agentrun.placeholders import argv_for

        assert self._job.command is not None
        try:
            ended = subprocess.run(
                argv_for(self._job.command, attempt.item),
                input=json.dumps(describe_item(attempt.item)).encode() + b"\n",
                stdout=subprocess.PIPE,
                env={**os.environ, **variables(attempt)},
                cwd=self._job.base,
                check=False,
            )
        except (ValueError, OSError) as error:
            return Outcome("failed", failure=Failure("program", f"command: {error}"))
        if ended.returncode:
            failure = Failure("program", f"exit {ended.returncode}", exit_code=ended.returncode)
            return Outcome("skipped" if ended.returncode == SKIPPED else "failed", failure=failure)
        text = ended.stdout.decode("utf-8", "replace")
        if self._job.parse == "json":
            return parse_json(text)
        return Outcome("done", encode(text.removesuffix("\n").removesuffix("\r")))


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

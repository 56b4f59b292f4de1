"""Programs that serve: one long-lived program a slot, an item a line in, an outcome a line out.

JSON lines on its standard input and output; its standard error is the log. The runner writes an item, and waits:

    ← {"type": "item", "index": 0, "key": "a.txt", "path": "/…/a.txt", "attempt": 1, "run_id": "…",
       "idempotency_key": "…", "params": {…}, "dir": "…", "out": "…"}        (or "text", or "data", for "path")
    → {"type": "done", "output": …}                                          one of these ends the attempt
    → {"type": "failed", "message": "…", "retry": true, "after": 2.5}        false: for good; else tried again
    → {"type": "skipped", "reason": "…"}
    → {"type": "stop", "reason": "…", "resume_at": "2026-01-02T03:04:05Z"}   stops the run; what it needs is everyone's
    → {"type": "waiting"}                                                    after {"park": true}, see below

An outcome may repeat the item's "index"; one that is another item's is then refused. Before the outcome the program
may send messages of the channel, and reads one line in answer to each. A step's result is JSON as it is:

    → {"type": "step_get", "name": "search"}               ← {"n": 0, "found": true, "value": …}, or without
    → {"type": "step_put", "name": "search", "value": …}   ← {}, once it is on disk
    → {"type": "ask", "question": "…", "details": {…}}     ← {"answer": {"yes": true, …}} or {"park": true}
    → {"type": "usage", …} {"type": "log", "text": "…"} {"type": "progress", "text": "…"}    ← {}

Whatever is wrong with a message is answered {"error": "…"}. At the end of its input the program is to exit. A
timeout, a stop, a line that is no JSON object, or its death end it with its whole tree; the next attempt starts a
new one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.context import idempotency_key
from agentrun.agents.exceptions import failure_from
from agentrun.agents.failure import Failure
from agentrun.errors import Stop
from agentrun.executors.calling import CLOSE_SECONDS
from agentrun.executors.prints import empty_log, last_line, open_log
from agentrun.executors.programs.base import (
    CANNOT_RUN,
    NOT_FOUND,
    OUTPUT_LIMIT_BYTES,
    SKIPPED,
    Broom,
    cannot_start,
    describe_item,
    fail,
    read_json,
    run_variables,
    timed_out,
    too_long,
)
from agentrun.executors.programs.serve_process import Server, Unreadable
from agentrun.system.child import Child, await_children, describe_exit
from agentrun.system.guardian import Guardian
from agentrun.values.json import NotJson, encode
from agentrun.values.templates import fill

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


PARK_SECONDS = 5.0
"""What a program may take to let go of an item that is parked."""


class ServingExecutor:
    def __init__(self, job: Job, agent: Agent, *, guardian: Guardian | None, environ: Mapping[str, str]) -> None:
        assert agent.argv is not None
        self._job = job
        self._guardian = guardian
        self._environ = environ
        self._broom = Broom()
        self._slots = asyncio.Semaphore(job.concurrency)
        self._servers: dict[Path, Server] = {}
        """By log: a program has one for its lifetime, and so has a slot."""
        self._argv = [fill(element, {}) for element in agent.argv]

    async def start(self) -> None:
        """Programs are started when they are needed."""
        await_children()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                server = await self._take(attempt)
            except ValueError as error:  # what no variable can hold
                return fail(str(error))
            except OSError as error:
                return cannot_start(error, self._argv[0])
            try:
                outcome = await self._exchange(server, attempt, channel)
            except BaseException:
                await self._end(server)
                raise
            if server.is_spent:
                await self._end(server)
            return outcome

    async def close(self) -> None:
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.say_goodbye()
        await asyncio.gather(*(_part_from(server) for server in servers))
        await self._broom.close()

    async def _take(self, attempt: Attempt) -> Server:
        server = self._servers.get(attempt.log_path)
        if server is not None:
            if server.is_ready:
                empty_log(attempt.log_path)
                return server
            await self._end(server)
        server = self._servers[attempt.log_path] = await self._start_server(attempt)
        return server

    async def _end(self, server: Server) -> None:
        self._servers.pop(server.log_path, None)
        await server.end()

    async def _start_server(self, attempt: Attempt) -> Server:
        environ = {**os.environ, **self._environ, **run_variables(attempt.run_id, attempt.params)}
        environ.pop("AGENTRUN_CHANNEL", None)  # of a program that this runner may be part of
        theirs: list[int] = []
        ours: list[int] = []
        try:
            theirs.append(open_log(attempt.log_path))
            for their_end in (0, 1):
                ends = os.pipe()
                theirs.append(ends[their_end])
                ours.append(ends[1 - their_end])
            stderr, stdin, stdout = theirs
            child = Child(
                self._argv,
                guardian=self._guardian,
                environ=environ,
                cwd=self._job.base,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
            )
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        server = Server(child, attempt.log_path)
        try:
            await server.connect(*ours)
        except BaseException:
            await server.end()
            raise
        return server

    async def _exchange(self, server: Server, attempt: Attempt, channel: Channel) -> Outcome:
        talk, work = _Talk(server, attempt, channel), attempt.work
        try:
            async with asyncio.timeout(attempt.timeout_seconds) as clock:
                server.send(self._describe(attempt, work))
                outcome = await talk.outcome(clock)
        except TimeoutError:
            if not clock.expired():
                raise
            server.is_spent = True
            outcome = timed_out(attempt.timeout_seconds)
        except EOFError:
            server.is_spent = True
            outcome = await _obituary(server)
        except Unreadable as error:
            server.is_spent = True
            outcome = Outcome("failed", failure=Failure("program", str(error)))
        if talk.is_parked:
            # That is on disk. A program that did not let go of the item by the word for it is of no further use.
            server.is_spent |= outcome.kind != "waiting"
            return Outcome("waiting")
        if outcome.kind == "done":
            # Made by the program, if it needs them: to make and remove them for each item is dear, and most need none.
            outcome.made_files = os.path.lexists(work) and not self._broom.sweep(work)
        return outcome

    def _describe(self, attempt: Attempt, work: str) -> dict[str, Any]:
        item = attempt.item
        described = {
            "type": "item",
            **describe_item(item),
            "attempt": attempt.number,
            "run_id": attempt.run_id,
            "idempotency_key": idempotency_key(attempt.run_id, item.key, attempt.generation),
            "params": dict(attempt.params),
            "dir": f"{work}/dir",
            "out": f"{work}/out",
        }
        return {**described, "carry": attempt.carry} if self._job.carry else described


class _Talk:
    """What is said about one item, up to its outcome."""

    def __init__(self, server: Server, attempt: Attempt, channel: Channel) -> None:
        self._server = server
        self._attempt = attempt
        self._channel = channel
        self._asked: dict[Any, Any] = {}
        self.is_parked = False

    async def outcome(self, clock: asyncio.Timeout) -> Outcome:
        while True:
            message = _parse(await self._server.receive())
            if (judge := _OUTCOMES.get(message["type"])) is not None:
                index = message.get("index", self._attempt.item.index)
                if index != self._attempt.item.index:
                    raise Unreadable(f"its outcome is of the item with index {index!r}, and it has that of this one")
                if message["type"] == "waiting" and not self.is_parked:
                    raise Unreadable('it says "waiting", and was not told {"park": true}')
                return judge(message)
            answer = await self._answer(message)
            if answer.get("park"):
                self.is_parked = True
                clock.reschedule(asyncio.get_running_loop().time() + PARK_SECONDS)
            self._server.send(answer)

    async def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The channel's, with a step's result as JSON in the place of its text."""
        if message["type"] == "step_put" and "value" in message:
            try:
                output = encode(message.pop("value"), name="value").decode()
            except NotJson as error:
                return {"error": str(error)}
            message = {"n": self._asked.get(message.get("name"), 0), **message, "output": output}
        answer = await self._channel(message)
        if message["type"] == "step_get" and "error" not in answer:
            self._asked[message["name"]] = answer["n"]
            if answer["found"]:
                answer = {"n": answer["n"], "found": True, "value": read_json(answer["output"].encode())}
        return answer


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = read_json(line)
        if isinstance(message, dict) and isinstance(message.get("type"), str):
            return message
        why = 'not an object with a "type"'
    except (ValueError, RecursionError) as error:
        why = f"not JSON: {error}"
    found = line[:200].decode("utf-8", "replace")[:60]
    raise Unreadable(f"a line of its output is {why}; it begins with {found!r} (its log is standard error)")


# ---- outcomes
def _done(message: dict[str, Any]) -> Outcome:
    if "output" not in message:
        raise Unreadable('its "done" has no "output"')
    try:
        output = encode(message["output"])
    except NotJson as error:
        return Outcome("failed", failure=failure_from(error))
    return too_long() if len(output) > OUTPUT_LIMIT_BYTES else Outcome("done", output)


def _failed(message: dict[str, Any]) -> Outcome:
    text = str(message.get("message") or "it did not say why")
    if message.get("retry") is False:
        return fail(text)
    after = message.get("after")
    seconds = max(0.0, float(after)) if isinstance(after, int | float) and not isinstance(after, bool) else None
    return Outcome("failed", failure=Failure("program", text, retry_after_seconds=seconds))


def _skipped(message: dict[str, Any]) -> Outcome:
    return Outcome("skipped", failure=Failure("program", str(message.get("reason", "")), exit_code=SKIPPED))


def _stop(message: dict[str, Any]) -> Outcome:
    failure = failure_from(Stop(str(message.get("reason", "")), resume_at=message.get("resume_at")))
    return Outcome("failed", failure=structs.replace(failure, traceback=""))


_OUTCOMES: dict[str, Callable[[dict[str, Any]], Outcome]] = {
    "done": _done,
    "failed": _failed,
    "skipped": _skipped,
    "stop": _stop,
    "waiting": lambda message: Outcome("waiting"),
}


async def _obituary(server: Server) -> Outcome:
    try:
        async with asyncio.timeout(2):
            code = await server.child.exited()
    except TimeoutError:
        return Outcome("lost", failure=Failure("lost", "the program closed its standard output"))
    text = f"the program ended before the item did: {describe_exit(code)}"
    if said := last_line(server.log_path):
        text += f": {said}"
    if code in (CANNOT_RUN, NOT_FOUND):
        return Outcome("failed", failure=Failure("program", text, exit_code=code))
    return Outcome("lost", failure=Failure("lost", text))


async def _part_from(server: Server) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await server.child.exited()
    except TimeoutError:
        pass
    await server.end()

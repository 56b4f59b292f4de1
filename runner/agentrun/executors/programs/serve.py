"""Programs that serve: one long-lived program a slot; each line in is an item, each line out an outcome or a message.

The lines are JSON, on its standard input and output; its standard error is the log. The runner writes an item:

    ← {"type": "item", "id": "9f86d081884c7d65", "index": 0, "key": "a.txt", "path": "/…/a.txt", "attempt": 1,
       "run_id": "…", "idempotency_key": "…", "params": {…}, "dir": "…", "out": "…"}    (or "text", "data", for "path")

Every line that the program writes repeats the "id" of the item's line. One of these ends the attempt:

    → {"type": "done", "id": "…", "output": …}
    → {"type": "failed", "id": "…", "message": "…", "retry": true, "after": 2.5}        false: for good; else retried
    → {"type": "skipped", "id": "…", "reason": "…"}
    → {"type": "stop", "id": "…", "reason": "…", "resume_at": "2026-01-02T03:04:05Z"}   stops the run: all would fail
    → {"type": "waiting", "id": "…"}                                                    after {"park": true}, see below

Before that the program may send messages of the channel, and must read one line in reply to each, which repeats the id,
too (they are left out here). A step's result is JSON as it is:

    → {"type": "step_get", "name": "search"}               ← {"n": 0, "found": true, "value": …}, or "found": false
    → {"type": "step_put", "name": "search", "value": …}   ← {}, once it is on disk
    → {"type": "ask", "question": "…", "details": {…}}     ← {"answer": {"yes": true, …}} or {"park": true}
    → {"type": "usage", …} {"type": "log", "text": "…"} {"type": "progress", "text": "…"}    ← {}

A message with something wrong in it is answered {"error": "…"}. A program may also number the lines that it writes for
an item, "no": 1, 2, 3 and so on, the outcome included: the replies repeat the number, and a line that is missing or
comes twice is noticed.

At the end of its input the program must exit. It is killed with everything it started after a timeout, a stop, a line
that is no such JSON object, has another attempt's id or not the next number, a line that comes before an item was
written, and its death; the next attempt starts a new one. A line without an id stops the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from agentrun.agents.attempt import Attempt, Channel, Outcome, StrayMessage, addressed
from agentrun.agents.context import idempotency_key
from agentrun.agents.exceptions import failure_from
from agentrun.agents.failure import Failure
from agentrun.agents.messages import KnownStep, Park, Refused, Reply, Stray, read_message, reply_to
from agentrun.errors import Stop
from agentrun.executors.calling import CLOSE_SECONDS
from agentrun.executors.port import Setting
from agentrun.executors.prints import empty_log, last_line, open_log
from agentrun.executors.programs.base import (
    Broom,
    cannot_start,
    describe_item,
    fail,
    read_json,
    run_variables,
    timed_out,
    too_long,
)
from agentrun.executors.programs.protocol import (
    CANNOT_RUN,
    CHANNEL_VARIABLE,
    NOT_FOUND,
    OUTPUT_LIMIT_BYTES,
    SKIPPED,
)
from agentrun.executors.programs.serve_process import ProgramProcess, Unreadable
from agentrun.system.child import DEATH_SECONDS, Child, describe_exit, keep_exit_codes
from agentrun.system.deadlines import Deadline, within
from agentrun.values.json import NotJson, encode
from agentrun.values.templates import fill

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


PARK_SECONDS = 5.0
"""How long a program may take to let go of an item that is parked."""


class ServeExecutor:
    """At most `concurrency` programs, each with one item at a time; they are started when they are needed."""

    def __init__(self, job: Job, agent: Agent, setting: Setting) -> None:
        assert agent.argv is not None
        self._job = job
        self._setting = setting
        self._broom = Broom()
        self._slots = asyncio.Semaphore(job.concurrency)
        self._programs: dict[Path, ProgramProcess] = {}
        """By log: a program has one log for its lifetime, and so has a slot."""
        self._argv = [fill(element, {}) for element in agent.argv]

    async def start(self) -> None:
        keep_exit_codes()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                program = await self._program_for(attempt)
            except ValueError as error:  # what no variable can hold
                return fail(str(error))
            except OSError as error:
                return cannot_start(error, self._argv[0])
            try:
                outcome = await self._exchange(program, attempt, channel)
            except BaseException:
                await self._kill(program)
                raise
            if program.is_spent:
                await self._kill(program)
            return outcome

    async def rest(self) -> None:
        programs, self._programs = list(self._programs.values()), {}
        for program in programs:
            program.close_input()
        await asyncio.gather(*(program.leave(seconds=CLOSE_SECONDS) for program in programs))

    async def close(self) -> None:
        await self.rest()
        await self._broom.close()

    async def _program_for(self, attempt: Attempt) -> ProgramProcess:
        program = self._programs.get(attempt.log_path)
        if program is not None:
            if program.can_start:
                empty_log(attempt.log_path)
                return program
            await self._kill(program)
        program = self._programs[attempt.log_path] = await self._start_program(attempt)
        return program

    async def _kill(self, program: ProgramProcess) -> None:
        self._programs.pop(program.log_path, None)
        await program.kill()

    async def _start_program(self, attempt: Attempt) -> ProgramProcess:
        environ = {**os.environ, **self._setting.environ, **run_variables(attempt)}
        environ.pop(CHANNEL_VARIABLE, None)  # of a program that this runner may be part of
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
                guardian=self._setting.guardian,
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
        program = ProgramProcess(child, attempt.log_path)
        try:
            await program.connect(*ours)
        except BaseException:
            await program.kill()
            raise
        return program

    async def _exchange(self, program: ProgramProcess, attempt: Attempt, channel: Channel) -> Outcome:
        end, work = ServeEnd(program, attempt, channel), attempt.work
        try:
            async with within(attempt.timeout_seconds) as deadline:
                self._write_item(program, attempt)
                outcome = await end.outcome(deadline)
        except TimeoutError:
            if not deadline.has_expired:
                raise
            program.is_spent = True
            outcome = timed_out(attempt.timeout_seconds)
        except EOFError:
            program.is_spent = True
            outcome = await _outcome_of_death(program)
        except Unreadable as error:
            program.is_spent = True
            outcome = Outcome("failed", failure=Failure("program", str(error)))
        except StrayMessage as error:
            program.is_spent = True
            return Outcome("lost", failure=Failure("lost", f"the program was ended: {error}"))
        if end.is_parked:
            # The question is kept. A program that did not let go of the item in the agreed way is of no further use.
            program.is_spent |= outcome.kind != "waiting"
            return Outcome("waiting")
        if outcome.kind == "done":
            # The program makes the folders if it needs them: making them for each item is expensive, and few need them.
            outcome.made_files = os.path.lexists(work) and not self._broom.sweep(work)
        return outcome

    def _write_item(self, program: ProgramProcess, attempt: Attempt) -> None:
        item, work = attempt.item, attempt.work
        described = {
            "type": "item",
            "id": attempt.id,
            **describe_item(item),
            "attempt": attempt.number,
            "run_id": attempt.run_id,
            "idempotency_key": idempotency_key(attempt.series, item.key, attempt.generation),
            "params": dict(attempt.params),
            "dir": f"{work}/dir",
            "out": f"{work}/out",
        }
        program.write({**described, "carry": attempt.carry} if self._job.carry else described)


class ServeEnd:
    """The agent end of one attempt in a program that serves: reads its lines, up to the outcome."""

    def __init__(self, program: ProgramProcess, attempt: Attempt, channel: Channel) -> None:
        self._program = program
        self._id = attempt.id
        self._channel = addressed(self._id, channel)
        self._lines = 0
        """How many lines have arrived."""
        self._steps: dict[str, int] = {}
        """The number of the last step_get of each name."""
        self.is_parked = False

    async def outcome(self, deadline: Deadline) -> Outcome:
        while True:
            line = _parse(await self._program.read())
            self._lines += 1
            if "id" not in line:
                return _without_id(line)
            if line["id"] != self._id:
                raise StrayMessage("it wrote a line with the id of another attempt")
            if line.get("no", self._lines) != self._lines:
                raise StrayMessage(f"its line {self._lines} has the number {line['no']!r}")
            if line["type"] in _OUTCOMES:
                if line["type"] == "waiting" and not self.is_parked:
                    raise Unreadable('it wrote "waiting" without having read {"park": true}')
                return _outcome_in(line)
            reply = await self._call(line)
            if isinstance(reply, Stray):
                raise StrayMessage(reply.error)
            if isinstance(reply, Park):
                self.is_parked = True
                deadline.restart(PARK_SECONDS)
            form = reply_to(self._id, self._lines, reply)
            if isinstance(reply, KnownStep) and reply.output is not None:
                del form["output"]
                form["value"] = read_json(reply.output.encode())
            if "no" not in line:
                del form["no"]
            self._program.write(form)

    async def _call(self, line: Mapping[str, Any]) -> Reply:
        """The channel's reply. A step_put has its result as `value` and needs no `n`."""
        if line["type"] == "step_put" and "value" in line:
            try:
                output = encode(line["value"], name="value").decode()
            except NotJson as error:
                return Refused(str(error))
            name = line.get("name")
            line = {"n": self._steps.get(name, 0) if isinstance(name, str) else 0, **line, "output": output}
        try:
            message = read_message(line)
        except ValueError as error:
            return Refused(str(error))
        reply = await self._channel(message)
        if isinstance(reply, KnownStep):
            self._steps[line["name"]] = reply.n
        return reply


def _parse(line: bytes) -> dict[str, Any]:
    try:
        value = read_json(line)
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            return value
        why = 'not an object with a "type"'
    except (ValueError, RecursionError) as error:
        why = f"not JSON: {error}"
    found = line[:200].decode("utf-8", "replace")[:60]
    raise Unreadable(f"a line of its output is {why}; it begins with {found!r} (write logs to standard error)")


def _without_id(line: Mapping[str, Any]) -> Outcome:
    """Not the item's fault, and the next item would end in the same way."""
    why = f'the program wrote {{"type": "{line["type"]}", …}} without the "id" of the item\'s line; every line must '
    why += f'repeat it: {{"type": "{line["type"]}", "id": "<the item\'s id>", …}}'
    return Outcome("failed", failure=replace(failure_from(Stop(why)), traceback=""))


_OUTCOMES = ("done", "failed", "skipped", "stop", "waiting")


def _outcome_in(line: Mapping[str, Any]) -> Outcome:
    match line["type"]:
        case "done":
            if "output" not in line:
                raise Unreadable('its "done" has no "output"')
            return _done(line["output"])
        case "failed":
            message = str(line.get("message") or "it gave no reason")
            if line.get("retry") is False:
                return fail(message)
            after: Any = line.get("after")
            known = isinstance(after, int | float) and not isinstance(after, bool)
            seconds = max(0.0, float(after)) if known else None
            return Outcome("failed", failure=Failure("program", message, retry_after_seconds=seconds))
        case "skipped":
            return Outcome("skipped", failure=Failure("program", str(line.get("reason", "")), exit_code=SKIPPED))
        case "stop":
            failure = failure_from(Stop(str(line.get("reason", "")), resume_at=line.get("resume_at")))
            return Outcome("failed", failure=replace(failure, traceback=""))
        case _:
            return Outcome("waiting")


def _done(value: Any) -> Outcome:
    try:
        output = encode(value)
    except NotJson as error:
        return Outcome("failed", failure=failure_from(error))
    return too_long() if len(output) > OUTPUT_LIMIT_BYTES else Outcome("done", output)


async def _outcome_of_death(program: ProgramProcess) -> Outcome:
    code = await program.exit_code_within(DEATH_SECONDS)
    if code == "alive":
        return Outcome("lost", failure=Failure("lost", "the program closed its standard output"))
    message = f"the program exited before it finished the item: {describe_exit(code)}"
    if line := last_line(program.log_path):
        message += f": {line}"
    if code in (CANNOT_RUN, NOT_FOUND):
        return Outcome("failed", failure=Failure("program", message, exit_code=code))
    return Outcome("lost", failure=Failure("lost", message))

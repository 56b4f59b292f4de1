"""Programs: one for each attempt, in a session of its own.

The item is on standard input, as JSON in a file that has no name; a pipe could deadlock with a program that
does not read. Standard output is the output. The attempt ends when the program does: a daemon that it leaves
behind may hold its standard output open. One that a done attempt left is ended with the launch, any other at
once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentrun.context import idempotency_key
from agentrun.errors import Fail
from agentrun.executors.child import Child, await_children, describe_exit
from agentrun.executors.facts import failure_from
from agentrun.executors.guardian import Guardian
from agentrun.executors.port import Attempt, Channel, Outcome
from agentrun.executors.prints import last_line, open_log
from agentrun.failure import Failure
from agentrun.item import Item
from agentrun.jsontext import NotJson, encode
from agentrun.placeholders import argv_for

if TYPE_CHECKING:
    from agentrun.agents import Agent
    from agentrun.job import Job

OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
SKIPPED, CANNOT_RUN, NOT_FOUND = 77, 126, 127
_BEYOND_64_BITS = re.compile(rb"[0-9]{19}")


class CommandExecutor:
    def __init__(self, job: Job, agent: Agent, *, guardian: Guardian | None, environ: Mapping[str, str]) -> None:
        assert agent.argv is not None
        self._job = job
        self._argv = agent.argv
        self._guardian = guardian
        self._environ = environ
        self._slots = asyncio.Semaphore(job.concurrency)

    async def start(self) -> None:
        await_children()

    async def close(self) -> None:
        """Nothing is left between attempts."""

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                child, output = self._spawn(attempt)
            except ValueError as error:  # what no argument or variable can hold
                return _fail(str(error))
            except OSError as error:
                return _cannot_start(error, self._argv[0])
            try:
                return await self._attend(child, output, attempt, channel)
            finally:
                output.close()

    def _spawn(self, attempt: Attempt) -> tuple[Child, _Output]:
        try:
            argv = argv_for(self._argv, attempt.item)
        except ValueError as error:
            raise ValueError(f"command: {error}") from None
        environ = {**os.environ, **self._environ, **variables(attempt)}
        opened: list[int] = []
        try:
            opened.append(_item_file(attempt.item))
            opened.append(open_log(attempt.log_path))
            reading, writing = os.pipe()
            opened.append(writing)
            output = _Output(reading)
            try:
                stdin, stderr, stdout = opened
                child = Child(
                    argv,
                    guardian=self._guardian,
                    environ=environ,
                    cwd=self._job.base,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                )
            except BaseException:
                output.close()
                raise
        finally:
            for fd in opened:
                os.close(fd)
        return child, output

    async def _attend(self, child: Child, output: _Output, attempt: Attempt, channel: Channel) -> Outcome:
        exited = asyncio.ensure_future(child.exited())
        try:
            ends: list[asyncio.Future[Any]] = [exited, output.too_long]
            await asyncio.wait(ends, timeout=attempt.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await child.end()
                if output.too_long.done():
                    return _too_long()
                message = f"timed out after {attempt.timeout_seconds:g} s"
                return Outcome("failed", failure=Failure("timeout", message))
            output.drain()
            if output.too_long.done():
                outcome = _too_long()
            else:
                outcome = await self._judge(exited.result(), output.data, attempt, channel)
            if outcome.kind != "done":
                # Before another attempt: nothing of this one may be at work still.
                await child.end()
            return outcome
        except BaseException:
            await child.end()
            raise
        finally:
            exited.cancel()

    async def _judge(self, code: int | None, output: bytearray, attempt: Attempt, channel: Channel) -> Outcome:
        said = last_line(attempt.log_path)
        if code is None:
            return Outcome("lost", failure=Failure("lost", "the program ended; its exit status is unknown"))
        if code == SKIPPED:
            return Outcome("skipped", failure=Failure("program", said, exit_code=code))
        if code != 0:
            message = describe_exit(code) if code > 0 else f"killed by {describe_exit(code)}"
            if said:
                message += f": {said}"
            return Outcome("failed", failure=Failure("program", message, exit_code=code))
        try:
            text = output.decode()
        except UnicodeDecodeError as error:
            note = f"[agentrun] its output is not UTF-8 (byte {error.start}); such bytes were replaced by U+FFFD"
            await channel({"type": "log", "text": note})
            text = output.decode(errors="replace")
        if self._job.parse == "json":
            return parse_json(text)
        return Outcome("done", encode(text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")))


def variables(attempt: Attempt) -> dict[str, str]:
    """What a program finds in its environment about its attempt."""
    item = attempt.item
    found = {
        "AGENTRUN_RUN_ID": attempt.run_id,
        "AGENTRUN_ITEM_KEY": item.key,
        "AGENTRUN_ITEM_INDEX": str(item.index),
        "AGENTRUN_ATTEMPT": str(attempt.number),
        "AGENTRUN_IDEMPOTENCY_KEY": idempotency_key(attempt.run_id, item.key, attempt.generation),
    }
    for name, value in attempt.params.items():
        text = value if isinstance(value, str) else encode(value, name=name).decode()
        found["AGENTRUN_PARAM_" + re.sub(r"[^A-Z0-9_]", "_", name.upper())] = text
    for name, text in found.items():
        if "\0" in text:
            raise ValueError(f"{name} would hold a NUL, which no environment variable can")
    return found


def describe_item(item: Item) -> dict[str, Any]:
    described: dict[str, Any] = {"index": item.index, "key": item.key}
    if item.path is not None:
        described["path"] = str(item.path)
    elif item.line is not None:
        described["text"] = item.line
    else:
        described["data"] = item.data
    return described


def _item_file(item: Item) -> int:
    try:
        text = orjson.dumps(describe_item(item))
    except (TypeError, ValueError):  # lone surrogates, integers beyond 64 bits
        import json

        text = json.dumps(describe_item(item)).encode()
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("agentrun-item")
    else:
        fd, path = tempfile.mkstemp()
        Path(path).unlink()
    rest = memoryview(text + b"\n")
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Output:
    """Standard output, read as it comes."""

    def __init__(self, fd: int) -> None:
        self.data = bytearray()
        self._loop = asyncio.get_running_loop()
        self.too_long: asyncio.Future[None] = self._loop.create_future()
        self._fd = fd
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Take what is there; more may never come, though the pipe is open."""
        while self._fd >= 0 and self._read():
            pass

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bool:
        try:
            chunk = os.read(self._fd, 256 * 1024)
        except BlockingIOError:
            return False
        self.data += chunk
        if not chunk:
            self.close()
        elif len(self.data) > OUTPUT_LIMIT_BYTES:
            self.close()
            if not self.too_long.done():
                self.too_long.set_result(None)
        return bool(chunk)


def parse_json(text: str) -> Outcome:
    """A program's output as JSON, or why it is none."""
    data = text.encode()
    try:
        value = orjson.loads(data)
        if _BEYOND_64_BITS.search(data):  # which orjson would turn into a float, without a word
            import json

            value = json.loads(text)
        return Outcome("done", encode(value))
    except NotJson as error:
        return Outcome("failed", failure=failure_from(error))
    except ValueError as error:
        found = f"it begins with {text[:60]!r}" if text.strip() else "there is none"
        message = f"exit 0, but its output is not JSON: {error}; {found}"
        return Outcome("failed", failure=Failure("program", message, exit_code=0))


def _too_long() -> Outcome:
    message = f"its output is over {OUTPUT_LIMIT_BYTES // 1024 // 1024} MiB; write to a file, and print its name"
    return Outcome("failed", failure=Failure("output", message))


def _fail(message: str) -> Outcome:
    return Outcome("failed", failure=replace(failure_from(Fail(message)), traceback=""))


def _cannot_start(error: OSError, program: str) -> Outcome:
    why = os.strerror(error.errno) if error.errno else str(error)
    message = f'"{program}" cannot be started: {why}'
    if error.errno == errno.E2BIG:
        return _fail(f"{message}; pass the item on standard input, where it is as JSON")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        message += " (or its interpreter, named in its first line, is not there)"
        return Outcome("failed", failure=Failure("program", message, exit_code=NOT_FOUND))
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOEXEC):
        return Outcome("failed", failure=Failure("program", message, exit_code=CANNOT_RUN))
    return Outcome("lost", failure=Failure("lost", message))  # out of processes, memory or descriptors: it may pass

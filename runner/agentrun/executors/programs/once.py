"""Programs: one for each attempt, in a session of its own.

The item is on standard input, as JSON in a file that has no name; a pipe could deadlock with a program that does not
read it. Standard output is the output. Messages go over the launch's socket. The attempt ends when the program exits,
even if a daemon that it left behind holds its standard output open. A daemon of a done attempt is killed when the
launch ends, a daemon of any other attempt at once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Channel, Outcome, addressed
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Log
from agentrun.executors.port import Setting
from agentrun.executors.prints import last_line, open_log
from agentrun.executors.programs.base import (
    Broom,
    cannot_start,
    describe_item,
    fail,
    make_folders,
    parse_json,
    timed_out,
    too_long,
    variables,
    write_json,
)
from agentrun.executors.programs.channel_socket import ChannelSocket, ProgramEnd
from agentrun.executors.programs.protocol import CHANNEL_VARIABLE, OUTPUT_LIMIT_BYTES, SKIPPED
from agentrun.item import Item
from agentrun.system.child import Child, describe_exit, keep_exit_codes
from agentrun.system.deadlines import Deadline
from agentrun.values.json import encode
from agentrun.values.templates import argv_for

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


class ProgramExecutor:
    """Starts one program for each attempt."""

    def __init__(self, job: Job, agent: Agent, setting: Setting) -> None:
        assert agent.argv is not None
        self._job = job
        self._argv = agent.argv
        self._guardian = setting.guardian
        self._environ = dict(setting.environ)
        self._slots = asyncio.Semaphore(job.concurrency)
        self._socket = ChannelSocket(setting.folder)
        self._broom = Broom()
        self._executable: str | None = None
        """The program's path, if it is the same for all items; else the program is searched for at each start."""

    async def start(self) -> None:
        keep_exit_codes()
        await self._socket.open()
        # Once for the launch: reading os.environ decodes all of it.
        self._environ = {**os.environ, **self._environ, CHANNEL_VARIABLE: self._socket.path}
        self._environ["PATH"] = path = _path_to_us(self._environ.get("PATH", os.defpath))
        self._executable = _find(self._argv[0], path)

    async def rest(self) -> None:
        """Nothing waits for items here."""

    async def close(self) -> None:
        await self._socket.close()
        await self._broom.close()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                child, output = self._spawn(attempt)
            except ValueError as error:  # what no argument or variable can hold
                return fail(str(error))
            except OSError as error:
                return cannot_start(error, self._argv[0])
            channel = addressed(attempt.id, channel)
            end = self._socket.open_end(child.attempt_id, channel)
            try:
                return await self._attend(child, output, end, attempt, channel)
            finally:
                output.close()
                await end.abort()

    def _spawn(self, attempt: Attempt) -> tuple[Child, _Output]:
        scratch, out = make_folders(attempt.work)
        try:
            argv = argv_for(self._argv, attempt.item, dir=scratch, out=out)
        except ValueError as error:
            raise ValueError(f"command: {error}") from None
        environ = {
            **self._environ,
            **variables(attempt),
            "AGENTRUN_ITEM_DIR": scratch,
            "AGENTRUN_OUT_DIR": out,
        }
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
                    executable=self._executable,
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

    async def _attend(
        self, child: Child, output: _Output, end: ProgramEnd, attempt: Attempt, channel: Channel
    ) -> Outcome:
        """Wait for the program, and turn what it did into the outcome."""
        overdue: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = Deadline(attempt.timeout_seconds, lambda: overdue.set_result(None))
        try:
            events: list[asyncio.Future[Any]] = [child.exit, output.too_long, end.must_end, overdue]
            try:
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            finally:
                deadline.close()
            if end.must_end.done():
                await child.kill()
                return end.must_end.result()
            if not child.exit.done():
                await child.kill()
                return too_long() if output.too_long.done() else timed_out(attempt.timeout_seconds)
            # Its last messages may come from a process that it did not wait for.
            await end.close()
            output.drain()
            if end.must_end.done():
                outcome = end.must_end.result()
            elif output.too_long.done():
                outcome = too_long()
            else:
                outcome = await self._judge(child.exit.result(), output.data, attempt, channel)
            if outcome.kind == "done":
                outcome.made_files = not self._broom.sweep(attempt.work)
                return outcome
            # Before another attempt starts, nothing of this one may be alive.
            await child.kill()
            return outcome
        except BaseException:
            await child.kill()
            raise

    async def _judge(self, code: int | None, output: bytearray, attempt: Attempt, channel: Channel) -> Outcome:
        if code is None:
            return Outcome("lost", failure=Failure("lost", "the program exited; its exit status is unknown"))
        if code != 0:
            said = last_line(attempt.log_path)
            if code == SKIPPED:
                return Outcome("skipped", failure=Failure("program", said, exit_code=code))
            message = describe_exit(code) if code > 0 else f"killed by {describe_exit(code)}"
            if said:
                message += f": {said}"
            return Outcome("failed", failure=Failure("program", message, exit_code=code))
        try:
            text = output.decode()
        except UnicodeDecodeError as error:
            note = f"[agentrun] its output is not UTF-8 (byte {error.start}); such bytes were replaced by U+FFFD"
            await channel(Log(note))
            text = output.decode(errors="replace")
        if self._job.parse == "json":
            return parse_json(text)
        return Outcome("done", encode(text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")))


def _path_to_us(path: str) -> str:
    """The PATH, with the folder of our command at its end if no `agentrun` is on it, as under cron."""
    ours = os.path.dirname(sys.executable)
    if shutil.which("agentrun", path=path) is None and shutil.which("agentrun", path=ours) is not None:
        return f"{path}{os.pathsep}{ours}"
    return path


def _find(program: str, path: str) -> str | None:
    if "/" in program or "{" in program:
        return None
    found = shutil.which(program, path=path)
    # A relative entry of the PATH is relative to the job's folder.
    return found if found is not None and os.path.isabs(found) else None


def _item_file(item: Item) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("agentrun-item")
    else:
        fd, path = tempfile.mkstemp()
        Path(path).unlink()
    rest = memoryview(write_json(describe_item(item)) + b"\n")
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Output:
    """A program's standard output, read as it arrives."""

    def __init__(self, fd: int) -> None:
        self.data = bytearray()
        self._loop = asyncio.get_running_loop()
        self.too_long: asyncio.Future[None] = self._loop.create_future()
        self._fd = fd
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Read what has arrived; more may never come, even though the pipe is open."""
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

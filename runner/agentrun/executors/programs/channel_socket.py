"""The launch's socket: how programs reach the channel of their attempt.

A Unix socket with JSON lines of at most 32 MiB, each answered by one line. The first line names the attempt, by the id
in the program's environment; the following ones are messages of the channel:

    → {"attempt": "…AGENTRUN_ATTEMPT_ID…"}          ← {}
    → {"type": "step_get", "name": "search"}        ← {"n": 0, "found": false}

A line with something wrong in it is answered {"error": …}; after a wrong first line the connection is closed. An `ask`
that parks the item is not answered: the program is killed. The socket needs no secret: it is in a folder that only the
user can reach.

A connection is one attempt's, and is refused when that is over. Our own commands also give each line after the first
the attempt's `id` and its number on this connection, `no`, from 1; the reply repeats them. A line with another id, or
not the next number, is stray: the program is killed, and the attempt is lost.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentrun.agents.attempt import Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Message, Park, Received, Refused, Reply, Stray, read_message
from agentrun.executors.programs.base import read_json, write_json
from agentrun.executors.programs.protocol import LINE_LIMIT_BYTES
from agentrun.system.child import uncancelled

SOCKET_NAME = "channel.sock"


class ChannelSocket:
    """One for each launch. `folder` is the job's, which we have locked; without one it is a temporary folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._temporary: str | None = None
        self._server: asyncio.Server | None = None
        self._ends: dict[str, ProgramEnd] = {}
        self._connections: set[ProgramConnection] = set()
        self.path = ""

    async def open(self) -> None:
        listening = self._bind()
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(lambda: ProgramConnection(self), sock=listening)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            for connection in list(self._connections):
                connection.abort()
            # One turn of the loop, in which their descriptors are closed.
            await asyncio.sleep(0)
        if self.path:
            _unlink(self.path)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def open_end(self, attempt_id: str, channel: Channel) -> ProgramEnd:
        """The agent end of an attempt; programs that name the attempt reach its channel until the end is closed.

        The id is the one in the program's environment.
        """
        end = self._ends[attempt_id] = ProgramEnd(attempt_id, channel, self)
        return end

    def _bind(self) -> socket.socket:
        if self._folder is not None:
            path = str(self._folder.absolute() / SOCKET_NAME)
            try:
                _unlink(path)  # left by a launch that died
                return self._bind_to(path)
            except OSError:
                # A socket's path may have some 100 bytes at most, and not every file system has sockets.
                pass
        self._temporary = tempfile.mkdtemp(prefix="agentrun-")
        os.chmod(self._temporary, 0o700)  # whatever the umask
        return self._bind_to(os.path.join(self._temporary, SOCKET_NAME))

    def _bind_to(self, path: str) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(path)
            os.chmod(path, 0o600)
        except BaseException:
            listening.close()
            raise
        self.path = path
        return listening

    # ---- called by ends and connections

    def find(self, attempt_id: str) -> ProgramEnd | None:
        # The ids of nested launches are joined by `:`; the innermost is the caller's.
        return self._ends.get(attempt_id.rpartition(":")[2])

    def remove_end(self, attempt_id: str) -> None:
        self._ends.pop(attempt_id, None)

    def add_connection(self, connection: ProgramConnection) -> None:
        self._connections.add(connection)

    def remove_connection(self, connection: ProgramConnection) -> None:
        self._connections.discard(connection)


class ProgramEnd:
    """The agent end of a program's attempt, kept by the runner for all the program's connections."""

    def __init__(self, attempt_id: str, channel: Channel, owner: ChannelSocket) -> None:
        self.id = attempt_id
        self._channel = channel
        self._owner = owner
        self._calls: set[asyncio.Future[Reply]] = set()
        self._is_open = True
        self.must_end: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """Done when the attempt must end: it is parked, or lost, or the runner could not answer (then with that
        error)."""

    async def call(self, message: Message) -> Reply:
        """The reply to a message. CancelledError if the attempt ended, or must end, before there was one."""
        if not self._is_open:
            return Refused("this attempt is over")
        call = asyncio.ensure_future(self._channel(message))
        self._calls.add(call)
        try:
            reply = await call
        except Exception as error:
            if not self.must_end.done():
                self.must_end.set_exception(error)
            raise asyncio.CancelledError from None
        finally:
            self._calls.discard(call)
        if isinstance(reply, Park):
            self.end(Outcome("waiting"))
            raise asyncio.CancelledError
        if isinstance(reply, Stray):
            self.lose(reply.error)
            raise asyncio.CancelledError
        return reply

    def lose(self, why: str) -> None:
        """Something stray arrived: the attempt must end."""
        self.end(Outcome("lost", failure=Failure("lost", f"the program was ended: {why}")))

    def end(self, outcome: Outcome) -> None:
        if not self.must_end.done():
            self.must_end.set_result(outcome)

    async def close(self) -> None:
        """Refuse further calls, and wait for those in flight; raises the error with which the runner ended one."""
        self._refuse_calls()
        while self._calls:
            await asyncio.wait(self._calls)
        if self.must_end.done():
            self.must_end.result()

    async def abort(self) -> None:
        """Refuse further calls, and cancel those in flight."""
        self._refuse_calls()
        for call in self._calls:
            call.cancel()
        if self._calls:
            # A copy: those that have ended are gone from the set by the time it is looked at.
            await uncancelled(asyncio.wait(set(self._calls)))
        if self.must_end.done():
            self.must_end.exception()  # raised before, or something worse was
        self.must_end.cancel()

    def _refuse_calls(self) -> None:
        self._is_open = False
        self._owner.remove_end(self.id)


class ProgramConnection(asyncio.Protocol):
    """One connection from a program. While a line is being answered, the next one is not read."""

    def __init__(self, owner: ChannelSocket) -> None:
        self._owner = owner
        self._end: ProgramEnd | None = None
        self._data = bytearray()
        self._searched = 0
        self._lines = 0
        """How many lines have arrived after the first."""
        self._is_too_long = False
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def abort(self) -> None:
        self._transport.abort()

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.add_connection(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._read_line()

    def connection_lost(self, error: Exception | None) -> None:
        # A call in flight continues: the result of a step is kept, whether or not somebody waits for the reply.
        self._owner.remove_connection(self)

    # ----

    def _read_line(self) -> None:
        """Handle the next line, if it has arrived in full and the one before it is answered."""
        if self._answering is not None or self._transport.is_closing():
            return
        end = self._data.find(b"\n", self._searched)
        if end < 0:
            if len(self._data) > LINE_LIMIT_BYTES:
                # The rest of it is read and dropped: a program that is still writing would not read the error.
                self._is_too_long = True
                self._data.clear()
            self._searched = len(self._data)
            self._transport.resume_reading()
            return
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        if self._is_too_long:
            self._is_too_long = False
            self._lines += self._end is not None
            self._write(Refused(f"a line is over {LINE_LIMIT_BYTES // 1024 // 1024} MiB"))
            self._read_line()
        elif self._end is None:
            self._find_attempt(line)
            self._read_line()
        else:
            self._transport.pause_reading()
            self._answering = asyncio.ensure_future(self._answer(self._end, line))
            self._answering.add_done_callback(self._answered)

    def _find_attempt(self, line: bytes) -> None:
        try:
            attempt_id = _parse(line).get("attempt")
        except ValueError:
            attempt_id = None
        if not isinstance(attempt_id, str):
            self._refuse('the first line must name the attempt: {"attempt": "…"}, with AGENTRUN_ATTEMPT_ID')
            return
        self._end = self._owner.find(attempt_id)
        if self._end is None:
            self._refuse("this attempt is not in flight: it is over, or belongs to another runner")
        else:
            self._write(Received())

    async def _answer(self, end: ProgramEnd, line: bytes) -> None:
        self._lines += 1
        address: dict[str, Any] = {}
        try:
            given = _parse(line)
            address = {name: given[name] for name in ("id", "no") if name in given}
            if (why := self._why_stray(end, given)) is not None:
                end.lose(why)
                return
            message = read_message(given)
        except ValueError as error:
            self._write(Refused(str(error)), address)
        else:
            self._write(await end.call(message), address)

    def _why_stray(self, end: ProgramEnd, given: dict[str, Any]) -> str | None:
        if given.get("id", end.id) != end.id:
            return "a message of another attempt arrived on its connection"
        no = given.get("no", self._lines)
        return None if no == self._lines else f"message {no!r} arrived in place of {self._lines}"

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering = None
        if not task.cancelled():
            task.result()
            self._read_line()

    def _refuse(self, why: str) -> None:
        self._write(Refused(why))
        self._transport.close()

    def _write(self, reply: Reply, address: Mapping[str, Any] = MappingProxyType({})) -> None:
        if not self._transport.is_closing():
            self._transport.write(write_json({**address, **reply.as_json()}) + b"\n")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        value = read_json(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"a line must be a JSON object; found {line[:60].decode('utf-8', 'replace')!r}")
    return value


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

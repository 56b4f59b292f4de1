"""The switchboard: a Unix socket by which programs reach the channel of their attempt.

JSON lines of at most 32 MiB, each answered by one. The first names the attempt, by what the program finds in
its environment; what follows are messages of the channel, one after the other:

    → {"attempt": "…AGENTRUN_ATTEMPT_ID…"}          ← {}
    → {"type": "step_get", "name": "search"}        ← {"n": 0, "found": false}

Whatever is wrong is answered {"error": …}; after that of a first line, the connection is closed. An `ask` that
parks the item is not answered: the program is ended. It is no secret who may call: the socket is in a folder of
the user's own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Channel
from agentrun.executors.programs.base import LINE_LIMIT_BYTES, read_json, write_json
from agentrun.system.child import uncancelled

SOCKET_NAME = "channel.sock"


class Switchboard:
    """One per launch. `folder` is the job's, whose lock is ours; without one it is a temporary folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._temporary: str | None = None
        self._server: asyncio.Server | None = None
        self._lines: dict[str, Line] = {}
        self._callers: set[_Caller] = set()
        self.path = ""

    async def open(self) -> None:
        listening = self._bind()
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Caller(self), sock=listening)
        except BaseException:
            listening.close()
            raise

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            for caller in list(self._callers):
                caller.hang_up()
            # One turn of the loop, in which their descriptors are closed.
            await asyncio.sleep(0)
        if self.path:
            _unlink(self.path)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def connect(self, attempt_id: str, channel: Channel) -> Line:
        """From now on programs that name this attempt reach its channel; until the line is closed."""
        line = self._lines[attempt_id] = Line(attempt_id, channel, self)
        return line

    def _bind(self) -> socket.socket:
        if self._folder is not None:
            path = str(self._folder.absolute() / SOCKET_NAME)
            try:
                _unlink(path)  # left by a launch that died
                return self._bind_to(path)
            except OSError:
                # A path may have some 100 bytes, and not every file system has sockets.
                pass
        self._temporary = tempfile.mkdtemp(prefix="agentrun-")
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

    # ---- called by callers

    def find(self, attempt_id: str) -> Line | None:
        # Those of nested launches are joined by `:`; the innermost is the one that calls.
        return self._lines.get(attempt_id.rpartition(":")[2])

    def forget(self, attempt_id: str) -> None:
        self._lines.pop(attempt_id, None)

    def arrived(self, caller: _Caller) -> None:
        self._callers.add(caller)

    def left(self, caller: _Caller) -> None:
        self._callers.discard(caller)


class Line:
    """The way to one attempt's channel, open while the attempt is in flight."""

    def __init__(self, attempt_id: str, channel: Channel, board: Switchboard) -> None:
        self._id = attempt_id
        self._channel = channel
        self._board = board
        self._calls: set[asyncio.Future[dict[str, Any]]] = set()
        self._is_open = True
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the attempt is to end: it is parked, or the runner could not answer, with that error."""

    async def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """The channel's answer. CancelledError if the attempt ended, or is to end, before there was one."""
        if not self._is_open:
            return {"error": "this attempt is over"}
        call = asyncio.ensure_future(self._channel(message))
        self._calls.add(call)
        try:
            answer = await call
        except Exception as error:
            if not self.ended.done():
                self.ended.set_exception(error)
            raise asyncio.CancelledError from None
        finally:
            self._calls.discard(call)
        if answer.get("park"):
            if not self.ended.done():
                self.ended.set_result(None)
            raise asyncio.CancelledError
        return answer

    async def finish(self) -> None:
        """Refuse what comes from here on, and wait for what is under way; raises what the runner ended it with."""
        self._close()
        while self._calls:
            await asyncio.wait(self._calls)
        if self.ended.done():
            self.ended.result()

    async def cut(self) -> None:
        """Refuse what comes from here on, and give up what is under way."""
        self._close()
        for call in self._calls:
            call.cancel()
        if self._calls:
            await uncancelled(asyncio.wait(self._calls))
        if self.ended.done():
            self.ended.exception()  # it was told, or something worse was
        self.ended.cancel()

    def _close(self) -> None:
        self._is_open = False
        self._board.forget(self._id)


class _Caller(asyncio.Protocol):
    """One connection. While a line is being answered, no further one is read."""

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self._line: Line | None = None
        self._data = bytearray()
        self._searched = 0
        self._is_too_long = False
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def hang_up(self) -> None:
        self._transport.abort()

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._board.arrived(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._take()

    def connection_lost(self, error: Exception | None) -> None:
        # What is being answered goes on: a step that is being put is put, whether or not somebody hears of it.
        self._board.left(self)

    # ----

    def _take(self) -> None:
        """The next line, if it is there as a whole and the one before it is answered."""
        if self._answering is not None or self._transport.is_closing():
            return
        end = self._data.find(b"\n", self._searched)
        if end < 0:
            if len(self._data) > LINE_LIMIT_BYTES:
                # The rest of it is read and dropped: one who is still writing would not hear of it.
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
            self._send({"error": f"a line is over {LINE_LIMIT_BYTES // 1024 // 1024} MiB"})
            self._take()
        elif self._line is None:
            self._meet(line)
            self._take()
        else:
            self._transport.pause_reading()
            self._answering = asyncio.ensure_future(self._answer(self._line, line))
            self._answering.add_done_callback(self._answered)

    def _meet(self, line: bytes) -> None:
        message = _parse(line)
        attempt_id = message.get("attempt") if message is not None else None
        if not isinstance(attempt_id, str):
            self._refuse('the first line must name the attempt: {"attempt": "…"}, with AGENTRUN_ATTEMPT_ID')
            return
        self._line = self._board.find(attempt_id)
        if self._line is None:
            self._refuse("this attempt is not in flight: it is over, or another runner's")
        else:
            self._send({})

    async def _answer(self, line: Line, data: bytes) -> None:
        message = _parse(data)
        if message is None:
            self._send({"error": f"a line must be a JSON object; found {data[:60].decode('utf-8', 'replace')!r}"})
        else:
            self._send(await line.call(message))

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering = None
        if not task.cancelled():
            task.result()
            self._take()

    def _refuse(self, why: str) -> None:
        self._send({"error": why})
        self._transport.close()

    def _send(self, answer: dict[str, Any]) -> None:
        if not self._transport.is_closing():
            self._transport.write(write_json(answer) + b"\n")


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        message = read_json(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

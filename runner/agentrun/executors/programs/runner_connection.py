"""A program's connection to the runner: a blocking client of the launch's socket, used by `agentrun step` and the like.

Shell scripts start those often, so this imports little: no asyncio, no orjson, no msgspec.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from agentrun.executors.programs.protocol import CHANNEL_VARIABLE, LINE_LIMIT_BYTES
from agentrun.system.guardian import ATTEMPT_VARIABLE

LINGER_SECONDS = 10.0
"""How long a command whose runner has died waits for the guardian to kill it. A script that continued meanwhile would
take the exit code for an answer."""


class CallError(Exception):
    """A call failed: the runner refused the message (`is_refusal`), or could not be reached."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


def is_inside(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is part of a program that a runner started as an attempt."""
    return bool(environ.get(CHANNEL_VARIABLE))


class RunnerConnection:
    """A connection to the runner, for the attempt that the environment names."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(environ[CHANNEL_VARIABLE])
        except OSError as error:
            self._socket.close()
            if isinstance(error, ConnectionRefusedError):  # the socket exists, and nobody listens
                time.sleep(LINGER_SECONDS)
            raise _unreachable(error) from None
        self._rest = bytearray()
        self._id = environ.get(ATTEMPT_VARIABLE, "").rpartition(":")[2]
        self._said = 0
        try:
            greeted = self._exchange({"attempt": environ.get(ATTEMPT_VARIABLE, "")})
        except CallError:
            self._socket.close()
            raise
        if "error" in greeted:
            self._socket.close()
            # Not a refusal: nothing more that this program does can help this attempt, but another may succeed.
            raise CallError(str(greeted["error"]))

    def call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a message. It does not return if the item is parked: the runner kills the program."""
        self._said += 1
        address = {"id": self._id, "no": self._said}
        reply = self._exchange({**message, **address})
        if {name: reply.pop(name, None) for name in address} != address:
            # A line without a next number: the runner kills the program. A script that continued would take the exit
            # code for an answer.
            self._socket.sendall(b'{"no": -1}\n')
            time.sleep(LINGER_SECONDS)
            raise CallError("the runner's reply is not to this program's last message")
        if "error" in reply:
            raise CallError(str(reply["error"]), is_refusal=True)
        return reply

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LINE_LIMIT_BYTES:
            most = LINE_LIMIT_BYTES // 1024 // 1024
            raise CallError(f"the message is {len(line):,} bytes of JSON, over {most} MiB", is_refusal=True)
        try:
            self._socket.sendall(line)
            reply = self._read_line()
        except OSError as error:
            time.sleep(LINGER_SECONDS)
            raise _unreachable(error) from None
        found = json.loads(reply)
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> RunnerConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read_line(self) -> bytes:
        start = 0
        while (end := self._rest.find(b"\n", start)) < 0:
            start = len(self._rest)
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
            self._rest += chunk
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line


def _unreachable(error: OSError) -> CallError:
    return CallError(f"the runner cannot be reached: {error.strerror or error}")

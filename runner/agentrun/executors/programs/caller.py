"""The channel from inside a program: a blocking client of the launch's socket.

Programs start it often, from shell scripts, so it imports little: no asyncio, no orjson.
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

CHANNEL_VARIABLE = "AGENTRUN_CHANNEL"
ATTEMPT_VARIABLE = "AGENTRUN_ATTEMPT_ID"
LINE_LIMIT_BYTES = 32 * 1024 * 1024
LINGER_SECONDS = 10.0
"""How long one whose runner has died waits for its own end, which the guardian sees to. A script that goes on
meanwhile would take the exit code for an answer."""


class CallError(Exception):
    """`is_refusal`: the runner says what is wrong with the message; else it could not be reached, or is gone."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


def is_inside(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this is part of a program that a runner started as an attempt."""
    return bool(environ.get(CHANNEL_VARIABLE))


class Caller:
    """A connection to the runner, in the name of the attempt that the environment tells of."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(environ[CHANNEL_VARIABLE])
        except OSError as error:
            self._socket.close()
            if isinstance(error, ConnectionRefusedError):  # the socket is there, and nobody behind it
                time.sleep(LINGER_SECONDS)
            raise CallError(f"the runner cannot be reached: {error.strerror or error}") from None
        self._rest = bytearray()
        try:
            self.call({"attempt": environ.get(ATTEMPT_VARIABLE, "")})
        except CallError as error:
            self._socket.close()
            # Whatever this program goes on to do is of no use to this attempt; another may be.
            raise CallError(str(error)) from None

    def call(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer. It does not return if the item is parked: the runner ends the program."""
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LINE_LIMIT_BYTES:
            most = LINE_LIMIT_BYTES // 1024 // 1024
            raise CallError(f"this is {len(line):,} bytes as JSON, over {most} MiB", is_refusal=True)
        try:
            self._socket.sendall(line)
            answer = self._read_line()
        except OSError as error:
            time.sleep(LINGER_SECONDS)
            raise CallError(f"the runner cannot be reached: {error.strerror or error}") from None
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise CallError(str(found["error"]), is_refusal=True)
        return found

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read_line(self) -> bytes:
        start = 0
        while (end := self._rest.find(b"\n", start)) < 0:
            start = len(self._rest)
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise ConnectionResetError(errno.ECONNRESET, "it has hung up")
            self._rest += chunk
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line

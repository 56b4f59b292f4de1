"""The frames between the runner and a worker process."""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from typing import Any

import orjson

HEADER = struct.Struct(">BQ")
_JSON, _WIDE_JSON, _BYTES = range(3)


def pack(message: dict[str, Any] | bytes) -> bytes:
    if isinstance(message, bytes):
        return HEADER.pack(_BYTES, len(message)) + message
    try:
        kind, body = _JSON, orjson.dumps(message)
    except (TypeError, ValueError):
        kind, body = _WIDE_JSON, json.dumps(message).encode()
    return HEADER.pack(kind, len(body)) + body


def unpack(kind: int, body: bytes | bytearray) -> Any:
    if kind == _BYTES:
        return bytes(body)
    return orjson.loads(body) if kind == _JSON else json.loads(body)


class Wire:
    """The worker's end of the socket; also the link of its attempts."""

    awaits = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._open = False

    def read(self) -> Any:
        """The next frame; EOFError at the end."""
        kind, size = HEADER.unpack(self._read(HEADER.size))
        return unpack(kind, self._read(size))

    def write(self, *messages: dict[str, Any] | bytes) -> None:
        rest = memoryview(b"".join(map(pack, messages)))
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def log(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def tell(self, message: dict[str, Any]) -> None:
        self.call(message)

    def call(self, message: dict[str, Any]) -> Any:
        with self._lock:  # the agent may have threads
            if not self._open:
                raise RuntimeError("this attempt is over")
            self.write(message)
            return self.read()

    def begin(self) -> None:
        self._open = True

    def finish(self, *messages: dict[str, Any] | bytes) -> None:
        """Send the outcome, when no thread of the agent waits for an answer any more."""
        with self._lock:
            self._open = False
            self.write(*messages)

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            chunk = os.read(self._fd, min(size - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return data

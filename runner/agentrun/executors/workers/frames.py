"""The frames between the runner and a worker process, and the worker's end of the channel.

A frame is one byte for the kind, eight for the length, and the body. Kinds: JSON; JSON that orjson does not take (lone
surrogates, integers beyond 64 bits); bytes as they are.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from typing import Any

import orjson

from agentrun.agents.messages import Message, Reply, read_reply

HEADER = struct.Struct(">BQ")
_JSON, _WIDE_JSON, _BYTES = range(3)
_READ_BYTES = 1 << 20


def pack(frame: Any) -> bytes:
    """A frame of bytes, or of any JSON value."""
    if isinstance(frame, bytes):
        return HEADER.pack(_BYTES, len(frame)) + frame
    try:
        kind, body = _JSON, orjson.dumps(frame)
    except (TypeError, ValueError):
        kind, body = _WIDE_JSON, json.dumps(frame).encode()
    return HEADER.pack(kind, len(body)) + body


def unpack(kind: int, body: bytes | bytearray) -> Any:
    if kind == _BYTES:
        return bytes(body)
    return orjson.loads(body) if kind == _JSON else json.loads(body)


class WorkerEnd:
    """The worker's side of its socket: the agent end of one attempt after the other."""

    awaits = False

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._is_open = False

    def read(self) -> Any:
        """The next frame; EOFError at the end of input."""
        kind, size = HEADER.unpack(self._read(HEADER.size))
        return unpack(kind, self._read(size))

    def write(self, *frames: Any) -> None:
        rest = memoryview(b"".join(map(pack, frames)))
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def log(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def send(self, message: Message) -> None:
        self.call(message)

    def call(self, message: Message) -> Reply:
        with self._lock:  # the agent may have threads
            if not self._is_open:
                raise RuntimeError("this attempt is over")
            self.write(message.as_json())
            return read_reply(self.read())

    def open(self) -> None:
        """Let the messages of a new attempt through."""
        self._is_open = True

    def close(self, *frames: Any) -> None:
        """Refuse further messages, and write the outcome once no thread of the agent waits for a reply."""
        with self._lock:
            self._is_open = False
            self.write(*frames)

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            chunk = os.read(self._fd, min(size - len(data), _READ_BYTES))
            if not chunk:
                raise EOFError
            data += chunk
        return data

"""The frames between the runner and a worker process, and the worker's end of the channel.

A frame is a JSON value and, for an outcome, the output as bytes: one byte for the kind of JSON, eight for the length of
each, and the two. Kinds: JSON; JSON that orjson does not take (lone surrogates, integers beyond 64 bits).
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
from typing import Any, NamedTuple, NoReturn

import orjson

from agentrun.agents.attempt import Attempt, Ended, Outcome
from agentrun.agents.messages import Message, Reply, read_reply
from agentrun.system.disk import Held
from agentrun.system.forks import close_in_children, refuse_in_child

HEADER = struct.Struct(">BQQ")
_JSON, _WIDE_JSON = range(2)
_READ_BYTES = 1 << 20
STRAYED = 70
"""The exit code of a worker that was sent something stray."""


class Frame(NamedTuple):
    value: Any
    output: bytes | bytearray = b""


def pack(value: Any, output: bytes = b"") -> bytes:
    """A frame of any JSON value, and of bytes."""
    try:
        kind, body = _JSON, orjson.dumps(value)
    except (TypeError, ValueError):
        kind, body = _WIDE_JSON, json.dumps(value).encode()
    return HEADER.pack(kind, len(body), len(output)) + body + output


def unpack(kind: int, body: bytes | bytearray, output: bytes | bytearray) -> Frame:
    return Frame(orjson.loads(body) if kind == _JSON else json.loads(body), output)


class WorkerEnd:
    """The worker's side of its socket: the agent end of one attempt after the other.

    A child that the agent forks has no part in it: the socket is closed there, and messages are refused.
    """

    awaits = False

    def __init__(self, fd: int) -> None:
        self._socket = Held(fd, "the worker's connection")
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_open = False
        self._id = ""
        self._said = 0
        close_in_children(fd)

    def read(self) -> Any:
        """The next frame's value; EOFError at the end of input."""
        kind, size, output_size = HEADER.unpack(self._read(HEADER.size))
        return unpack(kind, self._read(size), self._read(output_size)).value

    def log(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def send(self, message: Message) -> None:
        self.call(message)

    def call(self, message: Message) -> Reply:
        refuse_in_child(self._pid)  # before the lock, which a thread may have held when the child was forked
        with self._lock:  # the agent may have threads
            if not self._is_open:
                raise RuntimeError("this attempt is over")
            self._said += 1
            message.address(self._id, self._said)
            self._write(message.as_json())
            reply = self.read()
            if (reply.get("id"), reply.get("no")) != (self._id, self._said):
                leave("the runner's reply is not to this attempt's last message")
            return read_reply(reply)

    def open(self, attempt: Attempt) -> None:
        """Let the messages of a new attempt through."""
        if attempt.id == self._id:
            leave("the runner sent an attempt twice")
        self._id, self._said, self._is_open = attempt.id, 0, True

    def ready(self) -> None:
        """Report that the agent is loaded."""
        self._write({"type": "ready", "id": self._id})

    def close(self, outcome: Outcome, *, ends: bool) -> None:
        """Refuse further messages, and write the outcome once no thread of the agent waits for a reply."""
        refuse_in_child(self._pid)
        with self._lock:
            self._is_open = False
            ended = Ended.of(outcome, attempt_id=self._id, no=self._said + 1, ends=ends)
            self._write(ended.as_json(), outcome.output)

    def _write(self, value: Any, output: bytes = b"") -> None:
        refuse_in_child(self._pid)
        fd, rest = self._fd(), memoryview(pack(value, output))
        while rest:
            rest = rest[os.write(fd, rest) :]

    def _fd(self) -> int:
        try:
            self._socket.stat()
        except OSError:
            leave("the agent closed a file twice, and with it the worker's connection to the runner")
        return self._socket.fd

    def _read(self, size: int) -> bytearray:
        fd, data = self._fd(), bytearray()
        while len(data) < size:
            chunk = os.read(fd, min(size - len(data), _READ_BYTES))
            if not chunk:
                raise EOFError
            data += chunk
        return data


def leave(why: str) -> NoReturn:
    """End the worker at once, whatever its agent would do: something that it was sent cannot be trusted."""
    sys.stderr.write(f"[agentrun] {why}\n")
    sys.stderr.flush()
    os._exit(STRAYED)

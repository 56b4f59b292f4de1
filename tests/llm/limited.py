"""A server on loopback that takes so many requests a second and refuses the others with 429.

`POST /` with `{"key": …, "tokens": …}`; the answer is the same, after `seconds`. It keeps a book of what came.
Only the standard library: `make bench` and the tests use it alike.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Call:
    """One request, when it came."""

    at: float
    """By the monotonic clock, which all processes share."""
    key: str
    tokens: int
    is_accepted: bool


@dataclass
class LimitedServer:
    """A bucket that holds `burst` requests and gets `per_second` new ones."""

    per_second: float
    burst: float
    seconds: float
    """How long an answer takes; a refusal comes at once."""
    retry_after: str | None
    """What a refusal asks for, if it does."""
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    _left: float = 0.0
    _at: float = 0.0

    @property
    def accepted(self) -> list[Call]:
        return [call for call in list(self.calls) if call.is_accepted]

    @property
    def refused(self) -> int:
        return sum(not call.is_accepted for call in list(self.calls))

    def empty(self) -> None:
        """As if nobody had asked yet: an empty book, a full bucket."""
        self.calls.clear()
        self._left, self._at = self.burst, time.monotonic()

    def _takes(self) -> bool:
        now = time.monotonic()
        self._left = min(self.burst, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while body := await _body(reader):
                asked = json.loads(body)
                call = Call(time.monotonic(), asked["key"], asked.get("tokens", 0), self._takes())
                self.calls.append(call)
                if call.is_accepted:
                    await asyncio.sleep(self.seconds)
                    writer.write(_response("200 OK", body))
                else:
                    wait = f"Retry-After: {self.retry_after}\r\n" if self.retry_after is not None else ""
                    writer.write(_response("429 Too Many Requests", b'{"error": {"message": "slow down"}}', wait))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client was killed
        finally:
            writer.close()


async def _body(reader: asyncio.StreamReader) -> bytes:
    """The body of the next request; empty at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return await reader.readexactly(int(lengths[0]))


def _response(status: str, body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def serve_limited(
    per_second: float = 1e9, *, burst: float | None = None, seconds: float = 0.0, retry_after: str | None = None
) -> Iterator[LimitedServer]:
    """A server while the block runs; `burst` is a second's worth if it is not given."""
    server = LimitedServer(per_second, burst or per_second, seconds, retry_after)
    server.empty()
    loop, is_up = asyncio.new_event_loop(), threading.Event()

    async def run(until: asyncio.Event) -> None:
        listening = await asyncio.start_server(server._answer, "127.0.0.1", 0, backlog=256)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        is_up.set()
        await until.wait()
        # Not waited for: a client may keep its connection for as long as it likes.
        listening.close()

    def work() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(run(until))

    until = asyncio.Event()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    is_up.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(until.set)
        thread.join()

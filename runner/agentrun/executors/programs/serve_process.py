"""The runner's hold on a program that serves: lines to its standard input, lines from its standard output."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from agentrun.executors.programs.base import write_json
from agentrun.executors.programs.protocol import LINE_LIMIT_BYTES
from agentrun.system.child import Child, ConnectedChild


class Unreadable(Exception):
    """The program wrote something that is not in the protocol."""


class ProgramProcess(ConnectedChild):
    """One program that serves. While a line of it has not been received, no more is read."""

    def __init__(self, child: Child, log_path: Path) -> None:
        super().__init__(child)
        self.log_path = log_path
        self._reading: asyncio.ReadTransport | None = None
        self._writing: asyncio.WriteTransport | None = None

    async def connect(self, writing: int, reading: int) -> None:
        """Connect to its standard input and output."""
        loop = asyncio.get_running_loop()
        # As files first: whatever happens below, they close the descriptors.
        into, out_of = os.fdopen(writing, "wb", 0), os.fdopen(reading, "rb", 0)
        try:
            self._reading, _ = await loop.connect_read_pipe(lambda: self, out_of)
            self._writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, into)
        except BaseException:
            into.close()
            out_of.close()
            raise

    def write(self, value: Any) -> None:
        """Write a JSON value as one line."""
        assert self._writing is not None
        if not self._writing.is_closing():
            # Some languages take these, too, for the end of a line.
            line = write_json(value).replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
            self._writing.write(line.replace(b"\xc2\x85", b"\\u0085") + b"\n")

    async def read(self) -> bytes:
        """The next line that is not blank; EOFError if there will be none."""
        searched = 0
        while True:
            end = self._data.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._data[:end])
                del self._data[: end + 1]
                if line.strip():
                    return line
                searched = 0
                continue
            searched = len(self._data)
            if searched > LINE_LIMIT_BYTES:
                raise Unreadable(f"a line of its output is over {LINE_LIMIT_BYTES // 1024 // 1024} MiB")
            if not self._at_end:
                assert self._reading is not None
                self._reading.resume_reading()
            await self._more()

    def close_input(self) -> None:
        if self._writing is not None:
            self._writing.close()

    async def kill(self) -> None:
        try:
            await super().kill()
        finally:
            # One turn of the loop, in which the descriptors are closed.
            await asyncio.sleep(0)

    def _reading_from(self) -> int:
        assert self._reading is not None
        return int(self._reading.get_extra_info("pipe").fileno())

    def _disconnect(self) -> None:
        if self._reading is not None:
            self._reading.close()
        if self._writing is not None and not self._writing.is_closing():
            self._writing.abort()

    # ---- called by the transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if b"\n" in data:
            assert self._reading is not None
            self._reading.pause_reading()
        self._wake()

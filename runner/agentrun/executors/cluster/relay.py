"""In the engine's own process on a worker's machine: starts a host, and carries bytes between it and the runner."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from agentrun.system.guardian import ATTEMPT_VARIABLE, LAUNCH_VARIABLE, birth, end_tree, join_marker

CLOSE_SECONDS = 15.0
"""How long a host whose connection has ended may take to exit."""
PIECE_BYTES = 1 << 20
SCRATCH_PREFIX = "agentrun-"


class Relay:
    """One host, and the connection to it. All methods are called on one event loop."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.instance = secrets.token_hex(8)
        """Identifies this host among all that ever were."""
        self._mark, self._lease_seconds = str(spec["mark"]), float(spec["lease_seconds"])
        self._own_mark = f"{self._mark}-{self.instance}"
        self._scratch = ""
        self._ending: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes]
        self._born: int | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self.ended = asyncio.Event()
        """Set when nothing of the host is alive."""

    async def open(self) -> None:
        ours, theirs = socket.socketpair()
        # The host makes it, once its guardian is there to remove it: we may be killed at any moment.
        self._scratch = os.path.join(tempfile.gettempdir(), f"{SCRATCH_PREFIX}{self._own_mark}-{secrets.token_hex(4)}")
        environ = {name: value for name, value in os.environ.items() if name != ATTEMPT_VARIABLE}
        # Two more marks: by the run's, the next launch finds it; by its own, we do. If the launch started the cluster,
        # its guardian kills the host's, too, and then must itself find all that the host has started.
        for mark in (self._mark, self._own_mark):
            environ[LAUNCH_VARIABLE] = join_marker(environ, (LAUNCH_VARIABLE, mark))
        arguments = [str(theirs.fileno()), self._own_mark, str(self._lease_seconds), self._scratch]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "agentrun.executors.cluster.host", *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environ,
                cwd="/",
            )
        except BaseException:
            ours.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        finally:
            theirs.close()
        self._born = birth(self._process.pid)
        ours.setblocking(False)
        try:
            self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=4 * PIECE_BYTES)
        except BaseException:
            ours.close()
            # Not awaited: whoever cancelled this does not wait, and it ends by itself.
            asyncio.get_running_loop().run_in_executor(None, self._end_all)
            raise

    async def send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            pass  # `receive` tells that it has ended

    async def receive(self) -> bytes:
        """What the host sent; empty when it has ended, with everything that it started."""
        try:
            if piece := await self._reader.read(PIECE_BYTES):
                return piece
        except OSError:
            pass
        await self.end()
        return b""

    async def end(self) -> None:
        """End the host, and return when nothing of it is alive."""
        if self._ending is None:
            self._writer.close()
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._end_all)
        self.ended.set()

    def _end_all(self) -> None:
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        # Also after a clean exit: what it started may have lost its parent. Its pid may be another's once it is reaped.
        born = self._born if self._process.returncode is None else -1
        end_tree(self._process.pid, (LAUNCH_VARIABLE, self._own_mark), born)
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

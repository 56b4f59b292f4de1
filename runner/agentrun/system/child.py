"""A child process in its own session: known to the guardian, awaited, and killed with its whole tree."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from agentrun.system.guardian import ATTEMPT_VARIABLE, Guardian, birth, end_tree, join_marker

_T = TypeVar("_T")


class Child:
    def __init__(
        self,
        argv: Sequence[str],
        *,
        guardian: Guardian | None,
        environ: Mapping[str, str],
        cwd: Path,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int] = (),
        executable: str | None = None,
    ) -> None:
        """Raises what Popen raises: OSError, or ValueError for what cannot be an argument."""
        self._loop = asyncio.get_running_loop()
        self._guardian = guardian
        self._mark = (ATTEMPT_VARIABLE, secrets.token_hex(8))
        self.exit: asyncio.Future[int | None] = self._loop.create_future()
        """The exit code, or the negative signal number; None if something else reaped the process."""
        self._process = subprocess.Popen(
            argv,
            executable=executable,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env={**environ, ATTEMPT_VARIABLE: join_marker(environ, self._mark)},
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self.pid = self._process.pid
        if guardian is not None:
            guardian.began(self.pid)
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # macOS, some sandboxes
            threading.Thread(target=self._wait_in_thread, daemon=True, name="agentrun-wait").start()
        else:
            self._loop.add_reader(self._pidfd, self._on_pidfd)

    @property
    def is_alive(self) -> bool:
        if self.exit.done():
            return False
        # It may have exited without the loop knowing yet.
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    @property
    def attempt_id(self) -> str:
        """The last id in AGENTRUN_ATTEMPT_ID of its environment."""
        return self._mark[1]

    async def exited(self) -> int | None:
        return await asyncio.shield(self.exit)

    async def end(self) -> int | None:
        """Kill it with its whole tree, and return when all are gone, even if cancelled meanwhile."""
        return await uncancelled(self._end())

    async def _end(self) -> int | None:
        # Even if it has exited: its descendants may be alive. Once it is reaped, its pid may be reused.
        born = -1 if self.exit.done() else birth(self.pid)
        await self._loop.run_in_executor(None, end_tree, self.pid, self._mark, born)
        return await asyncio.shield(self.exit)

    def _on_pidfd(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._reap()

    def _wait_in_thread(self) -> None:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            pass
        try:
            self._loop.call_soon_threadsafe(self._reap)
        except RuntimeError:  # the loop is closed
            pass

    def _reap(self) -> None:
        # Before reaping: after that, the pid may be reused.
        if self._guardian is not None:
            self._guardian.ended(self.pid)
        try:
            # Not Popen.wait: if something else reaped the process (or SIGCHLD is ignored), it returns 0.
            code: int | None = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            code = None
        self._process.returncode = 0 if code is None else code
        if not self.exit.done():
            self.exit.set_result(code)


def describe_exit(code: int | None) -> str:
    if code is None:
        return "its exit status is unknown"
    if code >= 0:
        return f"exit {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def await_children() -> None:
    """Restore SIGCHLD: if the runner was started with it ignored, exit codes would be lost."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


async def uncancelled(awaitable: Awaitable[_T]) -> _T:
    """Await to the end even if the caller is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


class Peer(asyncio.Protocol):
    """The runner's end. What is said, and how, is for those who make one of this."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.is_spent = False
        """Whether it must not get another item."""
        self._data = bytearray()
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None
        self._watching = asyncio.ensure_future(self._watch())

    async def end(self) -> None:
        """Kill it with its whole tree."""
        self.is_spent = True
        try:
            await self.child.end()
        finally:
            self._watching.cancel()
            self._hang_up()

    def _hang_up(self) -> None:
        raise NotImplementedError

    async def _more(self) -> None:
        """Return when more input has arrived; EOFError at its end."""
        if self._ended:
            raise EOFError
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    async def _watch(self) -> None:
        await self.child.exited()
        # Its last message may still be in transit; its descendants may keep the connection open for ever.
        await asyncio.sleep(0.05)
        self._end_input()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_input()

    def _end_input(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

"""A child process in a session of its own: known to the guardian, awaited, and killed with everything it started."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import select
import signal
import subprocess
import threading
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from agentrun.system.guardian import ATTEMPT_VARIABLE, Guardian, birth, end_tree, join_marker

DEATH_SECONDS = 2.0
"""How long a child whose connection ended is given to exit, so that its exit code can be told."""
_T = TypeVar("_T")


class Child:
    """A running child process."""

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
        """Start it. Raises what Popen raises: OSError, or ValueError for what cannot be an argument."""
        self._loop = asyncio.get_running_loop()
        self._guardian = guardian
        self._mark = (ATTEMPT_VARIABLE, secrets.token_hex(8))
        self.exit: asyncio.Future[int | None] = self._loop.create_future()
        """Its exit code, or minus the number of the signal that killed it; None if the status was lost."""
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
            self._start_waiting()
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
        """The last of the ids in its environment's AGENTRUN_ATTEMPT_ID."""
        return self._mark[1]

    async def exited(self) -> int | None:
        return await asyncio.shield(self.exit)

    async def kill(self) -> int | None:
        """Kill it with everything it started; return its exit code when all are gone, even if cancelled meanwhile."""
        return await uncancelled(self._kill())

    async def _kill(self) -> int | None:
        # Even if it has exited: what it started may live on. Once it is reaped, its pid may be another process's.
        born = -1 if self.exit.done() else birth(self.pid)
        try:
            await self._loop.run_in_executor(None, end_tree, self.pid, self._mark, born)
        except RuntimeError:  # no more threads can be started
            end_tree(self.pid, self._mark, born)
        return await asyncio.shield(self.exit)

    def _start_waiting(self) -> None:
        try:
            threading.Thread(target=self._wait_in_thread, daemon=True, name="agentrun-wait").start()
        except RuntimeError as error:
            # Nobody would notice its end.
            self._process.kill()
            self._reap()
            raise OSError(errno.EAGAIN, str(error)) from None

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
        # Before reaping: from then on the pid may be another process's.
        if self._guardian is not None:
            self._guardian.ended(self.pid)
        try:
            # Not Popen.wait: it returns 0 if the status was lost (another waited for it, or SIGCHLD is ignored).
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


def keep_exit_codes() -> None:
    """Undo an inherited "ignore SIGCHLD", with which the exit codes of children would be lost."""
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


class ConnectedChild(asyncio.Protocol):
    """The runner's hold on a long-lived child: its process, and the connection over which it gets its attempts.

    Subclasses say how messages are written and read.
    """

    def __init__(self, child: Child) -> None:
        self.child = child
        self.is_spent = False
        """Whether it must not get another item."""
        self._data = bytearray()
        self._at_end = False
        self._waiting: asyncio.Future[None] | None = None
        self._watching = asyncio.ensure_future(self._watch())

    @property
    def can_start(self) -> bool:
        """Whether it can get an item: not if it sent something that nobody asked for, even if that is not read yet."""
        if self.is_spent or self._data or self._at_end or not self.child.is_alive:
            return False
        poll = select.poll()
        poll.register(self._reading_from(), select.POLLIN)
        return not poll.poll(0)

    async def kill(self) -> None:
        """Kill it with everything it started, and close the connection."""
        self.is_spent = True
        try:
            await self.child.kill()
        finally:
            self._watching.cancel()
            self._disconnect()

    def close_input(self) -> None:
        """Ask it to exit."""
        raise NotImplementedError

    async def leave(self, *, seconds: float) -> None:
        """Wait until it exits by itself, and kill what is left of it, at the latest after `seconds`."""
        await self.exit_code_within(seconds)
        await self.kill()

    async def exit_code_within(self, seconds: float) -> int | Literal["alive"] | None:
        """Its exit code (None if the status was lost), or "alive" if it has not exited after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self.child.exited()
        except TimeoutError:
            return "alive"

    def _disconnect(self) -> None:
        raise NotImplementedError

    def _reading_from(self) -> int:
        """The descriptor on which its messages arrive."""
        raise NotImplementedError

    async def _more(self) -> None:
        """Return when more data has arrived; EOFError if none will."""
        if self._at_end:
            raise EOFError
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    async def _watch(self) -> None:
        await self.child.exited()
        # Its last message may still be on its way; and a process it started may keep the connection open for ever.
        await asyncio.sleep(0.05)
        self._end_input()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_input()

    def _end_input(self) -> None:
        self._at_end = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

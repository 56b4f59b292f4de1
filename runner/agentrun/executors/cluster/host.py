"""A host: a process on a worker's machine that runs attempts with the executors of that machine.

It knows nothing of the engine that started it. It lives as long as its lease (`lease.py`), which a thread keeps, so
that an agent that holds up the loop does not end it. When the lease is over, or the connection has ended, nobody can
hear of an outcome any more: the process ends on the spot, and its guardian kills everything that it started. The
guardian also knows the deadline, for a host that is stopped or stuck.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Ended
from agentrun.errors import AgentrunError
from agentrun.executors.choice import open_executor
from agentrun.executors.cluster.archive import unpack_folder
from agentrun.executors.cluster.fence import facts, sight, sweep
from agentrun.executors.cluster.frames import HostFrame, make_frame
from agentrun.executors.cluster.hello import read_hello, sees_folder
from agentrun.executors.cluster.hosted import HostedAttempt, lost_by_machine
from agentrun.executors.cluster.lanes import URGENT, Incoming, Outgoing
from agentrun.executors.cluster.lease import HostLease
from agentrun.executors.port import Executor
from agentrun.executors.prints import capture_prints
from agentrun.system.child import keep_exit_codes
from agentrun.system.forks import close_in_children, ending_children_of
from agentrun.system.guardian import Guardian, boot_clock

LOG_SECONDS = 2.0
READ_BYTES = 1 << 20


class Host:
    """The loop's part; `keep_lease` and `write` are those of a thread each."""

    def __init__(self, connection: socket.socket, mark: str, lease_seconds: float, scratch: Path) -> None:
        self._connection = connection
        self._scratch, self._mark = scratch, mark
        self._lease = HostLease(lease_seconds, now=boot_clock())
        self._guardian = Guardian.start(None, mark, deadline=self._lease.deadline, scratch=str(scratch))
        scratch.mkdir(mode=0o700)
        self._outgoing = Outgoing()
        self._may_send = threading.Condition()
        self._is_writing = False
        self._attempts: dict[str, HostedAttempt] = {}
        self._queue: deque[HostedAttempt] = deque()
        """Attempts that were sent ahead, and begin when a slot is free."""
        self._slots = 1
        self._taken: set[int] = set()
        """Slots in which attempts run: a program that serves belongs to one of them, and so does a log."""
        self._sends_logs = False
        self._folder: asyncio.Future[bytes]
        self._closing: asyncio.Future[None]
        self._opening: asyncio.Task[None] | None = None
        self._executor: Executor | None = None
        self._sweeping: set[asyncio.Task[None]] = set()
        self._sees_folder = False
        self._loop: asyncio.AbstractEventLoop

    async def serve(self) -> None:
        """Run attempts until the runner closes the host."""
        self._loop = asyncio.get_running_loop()
        self._closing, self._folder = self._loop.create_future(), self._loop.create_future()
        keep_exit_codes()
        for part in (self.keep_lease, self.write):
            threading.Thread(target=part, name=f"agentrun-{part.__name__}", daemon=True).start()
        watching = [asyncio.ensure_future(self._guardian.watch()), asyncio.ensure_future(self._report_logs())]
        with capture_prints(), ending_children_of(self._loop):
            try:
                self.send("up", facts=facts(), mark=self._mark, sight=sight(), scratch=str(self._scratch))
                await self._closing
            finally:
                for task in watching:
                    task.cancel()
                attempts = [one.task for one in self._attempts.values() if one.task is not None]
                for task in attempts:
                    task.cancel()
                await asyncio.gather(*attempts, return_exceptions=True)
                if self._executor is not None:
                    await self._executor.close()
                await asyncio.to_thread(self._flush)
                self._guardian.close()

    def send(self, kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> None:
        """From any thread."""
        self._put(make_frame(kind, parts, **fields), is_urgent=kind in URGENT)

    def _put(self, frame: bytes, *, is_urgent: bool) -> None:
        with self._may_send:
            self._outgoing.put(frame, is_urgent=is_urgent)
            self._may_send.notify_all()

    def _flush(self) -> None:
        """Return when everything has been sent. If nobody takes it, the lease ends the process."""
        with self._may_send:
            self._may_send.wait_for(lambda: self._outgoing.is_empty and not self._is_writing)

    # ---- the threads

    def write(self) -> None:
        """Send what there is to send, as far as the other side takes it."""
        while True:
            with self._may_send:
                self._is_writing = False
                while not (data := self._outgoing.take()):
                    self._may_send.notify_all()
                    self._may_send.wait()
                self._is_writing = True
            try:
                self._connection.sendall(data)
            except OSError:
                leave()

    def keep_lease(self) -> None:
        """Read frames, ping, and end the process when its lease is over or nobody is there any more."""
        incoming = Incoming()
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while not self._lease.is_over(now := boot_clock()):
            if (number := self._lease.ping(now)) is not None:
                self.send("ping", n=number)
            if not poll.poll(self._lease.seconds_to_next(boot_clock()) * 1000 + 1):
                continue
            try:
                piece = self._connection.recv(READ_BYTES)
            except OSError:
                break
            if not piece:
                break
            for frame in incoming.feed(piece):
                if frame.type == "pong":
                    if self._lease.pong(frame.value["n"]):
                        self._guardian.renew(self._lease.deadline)
                elif frame.type == "taken":
                    with self._may_send:
                        self._outgoing.acknowledge(frame.value["size"])
                        self._may_send.notify_all()
                else:
                    self._loop.call_soon_threadsafe(self._receive, frame)
            if acknowledgement := incoming.acknowledgement():
                self._put(acknowledgement, is_urgent=True)
        leave()

    # ---- on the loop

    def _receive(self, frame: HostFrame) -> None:
        one = self._attempts.get(frame.value.get("id", ""))
        match frame.type:
            case "hello":
                self._opening = asyncio.ensure_future(self._open(frame.value))
            case "folder":
                self._folder.set_result(frame.parts.get("folder", b""))
            case "attempt":
                self._take(frame)
            case "answer" if one is not None:
                one.answer(frame.value)
            case "end" if one is not None:
                self._end(one)
            case "recall":
                for waiting in list(self._queue):
                    self._end(waiting)
            case "sweep":
                self._sweeping.add(
                    task := asyncio.ensure_future(self._sweep(frame.value["mark"], frame.value["scratch"]))
                )
                task.add_done_callback(self._sweeping.discard)
            case "rest" if self._executor is not None:
                self._opening = asyncio.ensure_future(self._executor.rest())
            case "close" if not self._closing.done():
                self._closing.set_result(None)

    async def _open(self, hello: Mapping[str, Any]) -> None:
        try:
            self._sees_folder = sees_folder(hello)
            base = Path(hello["base"])
            if not self._sees_folder:
                self.send("wants")
                base = self._scratch / "job"
                unpack_folder(await self._folder, base)
            os.environ.update(hello["environ"])
            sys.path += [entry for entry in hello["sys_path"] if self._sees_folder and entry not in sys.path]
            os.chdir(base)
            job, agent = read_hello(hello, base)
            # The runner's log is that of the runner's slot: a program that serves here would be tied to that.
            self._sends_logs = job.serve or not self._sees_folder
            environ = hello["environ"]
            executor = open_executor(job, agent, guardian=self._guardian, environ=environ, folder=self._scratch)
            self._executor = executor
            await executor.start()
        except AgentrunError as error:
            self.send("refused", message=error.message, traceback=getattr(error, "traceback", ""))
        except Exception as error:
            self.send("refused", message=f"{type(error).__name__}: {error}", traceback="")
        else:
            self.send("ready", sees_folder=self._sees_folder)

    async def _sweep(self, mark: str, scratch: str) -> None:
        await asyncio.to_thread(sweep, mark, scratch)
        self.send("swept", mark=mark)

    def _take(self, frame: HostFrame) -> None:
        try:
            one = HostedAttempt.receive(frame, self.send, self._scratch, is_blind=not self._sees_folder)
        except (OSError, ValueError) as error:
            attempt_id = frame.value["id"]
            outcome = lost_by_machine(f"the item's files cannot be put in place: {error}")
            ended = Ended.of(outcome, attempt_id=attempt_id, no=0, ends=False)
            self.send("outcome", {"output": outcome.output}, id=attempt_id, ended=ended.as_json(), seconds=None)
            return
        self._slots = frame.value["slots"]
        self._attempts[one.id] = one
        self._queue.append(one)
        self._begin()

    def _begin(self) -> None:
        assert self._executor is not None
        while self._queue and len(self._taken) < self._slots:
            slot = next(number for number in count() if number not in self._taken)
            self._taken.add(slot)
            log = self._scratch / f"slot-{slot}.log" if self._sends_logs else None
            self._queue.popleft().start(self._executor, self._ended, slot=slot, log=log)

    def _ended(self, one: HostedAttempt) -> None:
        self._taken.discard(one.slot)
        del self._attempts[one.id]
        self._begin()

    def _end(self, one: HostedAttempt) -> None:
        if one.task is None:
            self._queue.remove(one)
            del self._attempts[one.id]
        one.end()

    async def _report_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_SECONDS)
            for one in list(self._attempts.values()):
                one.report_log()


def leave() -> None:
    """End at once, whatever the agent would do. The guardian notices, and ends the rest."""
    os._exit(1)


def main(arguments: list[str]) -> None:
    fd, mark, lease_seconds, scratch = int(arguments[0]), arguments[1], float(arguments[2]), Path(arguments[3])
    os.set_inheritable(fd, False)
    close_in_children(fd)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    asyncio.run(Host(socket.socket(fileno=fd), mark, lease_seconds, scratch).serve())


if __name__ == "__main__":
    main(sys.argv[1:])

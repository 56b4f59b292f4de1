"""Sync agents in long-lived worker processes: a timeout or a crash ends the attempt, not the run."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Channel, Ended, Outcome, StrayMessage, call_json
from agentrun.agents.exceptions import outcome_without_start
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Stray, reply_to
from agentrun.executors.calling import CLOSE_SECONDS
from agentrun.executors.port import Setting
from agentrun.executors.prints import last_line, open_log
from agentrun.executors.workers.frames import HEADER, Frame, pack, unpack
from agentrun.system.child import DEATH_SECONDS, Child, ConnectedChild, describe_exit, keep_exit_codes
from agentrun.system.deadlines import Deadline, within

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


LOAD_SECONDS = 60.0
"""How long a worker may take to load its agent, at least; the attempt's own time starts after that."""


# -P: a `json.py` of the user's in the working directory must not become ours.
COMMAND = (sys.executable, "-P", "-m", "agentrun.executors.workers.worker")


class WorkerExecutor:
    """At most `concurrency` workers, each with one attempt at a time; they are started when they are needed.

    `connect` makes the two ends of a worker's connection, the runner's and the worker's. `command` starts a worker,
    with the number of its end as the last word; it may take `load_seconds` to load its agent.
    """

    def __init__(
        self,
        job: Job,
        agent: Agent,
        setting: Setting,
        *,
        connect: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair,
        command: Sequence[str] = COMMAND,
        load_seconds: float = LOAD_SECONDS,
    ) -> None:
        self._job = job
        self._agent = agent
        self._setting = setting
        self._connect, self._command, self._load_seconds = connect, command, load_seconds
        self._slots = asyncio.Semaphore(job.concurrency)
        self._idle: list[WorkerProcess] = []

    async def start(self) -> None:
        keep_exit_codes()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                worker = await self._idle_worker() or await self._start_worker(attempt)
            except OSError as error:
                lost = Outcome("lost", failure=Failure("lost", f"no worker could be started: {error}"))
                return outcome_without_start(error, "a worker") or lost
            try:
                outcome = await self._exchange(worker, attempt, channel)
            except BaseException:
                await worker.kill()
                raise
            if worker.is_spent:
                await worker.kill()
            else:
                self._idle.append(worker)
            return outcome

    async def rest(self) -> None:
        workers, self._idle = self._idle, []
        for worker in workers:
            worker.close_input()
        await asyncio.gather(*(worker.leave(seconds=CLOSE_SECONDS) for worker in workers))

    async def close(self) -> None:
        await self.rest()

    async def _idle_worker(self) -> WorkerProcess | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.can_start:
                return worker
            await worker.kill()
        return None

    async def _start_worker(self, attempt: Attempt) -> WorkerProcess:
        loop = asyncio.get_running_loop()
        log = open_log(attempt.log_path)
        try:
            ours, theirs = self._connect()
        except BaseException:
            os.close(log)
            raise
        try:
            child = Child(
                [*self._command, str(theirs.fileno())],
                guardian=self._setting.guardian,
                environ={**os.environ, **self._setting.environ},
                cwd=self._job.base,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(log)
        ours.setblocking(False)
        worker = WorkerProcess(child)
        try:
            await loop.create_unix_connection(lambda: worker, sock=ours)
        except BaseException:
            ours.close()
            await child.kill()
            raise
        worker.write(self._agent.reference_for(self._job).as_json())
        return worker

    async def _exchange(self, worker: WorkerProcess, attempt: Attempt, channel: Channel) -> Outcome:
        allowed = attempt.timeout_seconds
        if allowed is not None and not worker.is_ready:
            allowed = max(allowed, self._load_seconds)
        try:
            async with within(allowed) as deadline:
                worker.write({"type": "attempt", **attempt.as_json()})
                return await self._outcome(worker, attempt, channel, deadline)
        except TimeoutError:
            if not deadline.has_expired:
                raise
            worker.is_spent = True
            message = f"timed out after {attempt.timeout_seconds:g} s"
            if not worker.is_ready:
                message = f"loading the agent took more than {allowed:g} s"
            return Outcome("failed", failure=Failure("timeout", message))
        except EOFError:
            worker.is_spent = True
            return Outcome("lost", failure=Failure("lost", await _describe_death(worker, attempt)))
        except StrayMessage as error:
            worker.is_spent = True
            return Outcome("lost", failure=Failure("lost", f"the worker was ended: {error}"))

    async def _outcome(self, worker: WorkerProcess, attempt: Attempt, channel: Channel, deadline: Deadline) -> Outcome:
        attempt_id, said = attempt.id, 0
        while True:
            frame, output = await worker.read()
            if frame.get("id") != attempt_id:
                raise StrayMessage("it sent a message that is not this attempt's")
            if frame["type"] == "ready":
                if worker.is_ready:
                    raise StrayMessage("it was ready twice")
                worker.is_ready = True
                deadline.restart(attempt.timeout_seconds)
            elif frame["type"] == "outcome":
                ended = Ended.from_json(frame)
                if ended.no != said + 1:
                    raise StrayMessage("messages that it sent before its outcome did not arrive")
                worker.is_spent = ended.ends
                return ended.outcome(bytes(output))
            else:
                reply = await call_json(channel, frame)
                if isinstance(reply, Stray):
                    raise StrayMessage(reply.error)
                said = frame["no"]
                worker.write(reply_to(attempt_id, said, reply))


async def _describe_death(worker: WorkerProcess, attempt: Attempt) -> str:
    code = await worker.exit_code_within(DEATH_SECONDS)
    if code == "alive":
        return "the worker closed its connection to the runner"
    text = describe_exit(code)
    if code == -9:
        text += "; it may have run out of memory"
    elif code is not None and code >= 0 and (line := last_line(attempt.log_path)):
        text += f": {line}"
    return f"the worker died: {text}"


class WorkerProcess(ConnectedChild):
    """The runner's hold on one worker."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.is_ready = False
        """Whether its agent is loaded."""
        self._transport: asyncio.WriteTransport
        self._frames: deque[Frame] = deque()

    def write(self, frame: Any) -> None:
        self._transport.write(pack(frame))

    @property
    def can_start(self) -> bool:
        return not self._frames and super().can_start

    async def read(self) -> Frame:
        """The next frame; EOFError if there will be none."""
        while not self._frames:
            await self._more()
        return self._frames.popleft()

    def _reading_from(self) -> int:
        return int(self._transport.get_extra_info("socket").fileno())

    def close_input(self) -> None:
        if not self._transport.is_closing():
            self._transport.write_eof()

    def _disconnect(self) -> None:
        self._transport.abort()

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= HEADER.size:
            kind, size, output_size = HEADER.unpack_from(self._data)
            middle = HEADER.size + size
            end = middle + output_size
            if len(self._data) < end:
                break
            self._frames.append(unpack(kind, self._data[HEADER.size : middle], self._data[middle:end]))
            del self._data[:end]
        if self._frames:
            self._wake()

"""Sync agents in long-lived worker processes: a timeout or a crash ends the attempt, not the run."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Channel, Ended, Outcome, call_json
from agentrun.agents.failure import Failure
from agentrun.executors.calling import CLOSE_SECONDS
from agentrun.executors.port import Setting
from agentrun.executors.prints import last_line, open_log
from agentrun.executors.workers.frames import HEADER, pack, unpack
from agentrun.system.child import DEATH_SECONDS, Child, ConnectedChild, describe_exit, keep_exit_codes

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


LOAD_SECONDS = 60.0
"""How long a worker may take to load its agent, at least; the attempt's own time starts after that."""


class WorkerExecutor:
    """At most `concurrency` workers, each with one attempt at a time; they are started when they are needed."""

    def __init__(self, job: Job, agent: Agent, setting: Setting) -> None:
        self._job = job
        self._agent = agent
        self._setting = setting
        self._slots = asyncio.Semaphore(job.concurrency)
        self._idle: list[WorkerProcess] = []

    async def start(self) -> None:
        keep_exit_codes()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                worker = await self._idle_worker() or await self._start_worker(attempt)
            except OSError as error:  # out of processes, memory or descriptors: it may pass
                return Outcome("lost", failure=Failure("lost", f"no worker could be started: {error}"))
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

    async def close(self) -> None:
        workers, self._idle = self._idle, []
        for worker in workers:
            worker.close_input()
        await asyncio.gather(*(worker.leave(seconds=CLOSE_SECONDS) for worker in workers))

    async def _idle_worker(self) -> WorkerProcess | None:
        while self._idle:
            worker = self._idle.pop()
            if not worker.is_spent and worker.child.is_alive:
                return worker
            await worker.kill()
        return None

    async def _start_worker(self, attempt: Attempt) -> WorkerProcess:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        log = open_log(attempt.log_path)
        try:
            child = Child(
                # -P: a `json.py` of the user's in the working directory must not become ours.
                [sys.executable, "-P", "-m", "agentrun.executors.workers.worker", str(theirs.fileno())],
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
            allowed = max(allowed, LOAD_SECONDS)
        try:
            async with asyncio.timeout(allowed) as clock:
                worker.write({"type": "attempt", **attempt.as_json()})
                return await self._outcome(worker, attempt, channel, clock)
        except TimeoutError:
            if not clock.expired():
                raise
            worker.is_spent = True
            message = f"timed out after {attempt.timeout_seconds:g} s"
            if not worker.is_ready:
                message = f"loading the agent took more than {allowed:g} s"
            return Outcome("failed", failure=Failure("timeout", message))
        except EOFError:
            worker.is_spent = True
            return Outcome("lost", failure=Failure("lost", await _describe_death(worker, attempt)))

    async def _outcome(
        self, worker: WorkerProcess, attempt: Attempt, channel: Channel, clock: asyncio.Timeout
    ) -> Outcome:
        while True:
            frame = await worker.read()
            if frame["type"] == "ready":
                worker.is_ready = True
                if attempt.timeout_seconds is not None:
                    clock.reschedule(asyncio.get_running_loop().time() + attempt.timeout_seconds)
            elif frame["type"] == "outcome":
                ended = Ended.from_json(frame)
                worker.is_spent = ended.ends
                return ended.outcome(await worker.read())
            else:
                worker.write((await call_json(channel, frame)).as_json())


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
        self._frames: deque[Any] = deque()

    def write(self, frame: Any) -> None:
        self._transport.write(pack(frame))

    async def read(self) -> Any:
        """The next frame; EOFError if there will be none."""
        while not self._frames:
            await self._more()
        return self._frames.popleft()

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
            kind, size = HEADER.unpack_from(self._data)
            end = HEADER.size + size
            if len(self._data) < end:
                break
            self._frames.append(unpack(kind, self._data[HEADER.size : end]))
            del self._data[:end]
        if self._frames:
            self._wake()

"""Sync agents in long-lived worker processes: a timeout or a crash takes the attempt, not the run."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.executors.calling import CLOSE_SECONDS
from agentrun.executors.prints import last_line, open_log
from agentrun.executors.workers.wire import HEADER, pack, unpack
from agentrun.executors.workers.worker import describe_attempt
from agentrun.system.child import Child, Peer, await_children, describe_exit
from agentrun.system.guardian import Guardian

if TYPE_CHECKING:
    from agentrun.agents.agent import Agent
    from agentrun.job.job import Job


LOAD_SECONDS = 60.0
"""What a worker may take to load its agent, at least; an attempt's own time begins after that."""


class ProcessExecutor:
    def __init__(self, job: Job, agent: Agent, *, guardian: Guardian | None, environ: Mapping[str, str]) -> None:
        self._job = job
        self._agent = agent
        self._guardian = guardian
        self._environ = environ
        self._slots = asyncio.Semaphore(job.concurrency)
        self._idle: list[_Worker] = []

    async def start(self) -> None:
        """Workers are started when they are needed."""
        await_children()

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        async with self._slots:
            try:
                worker = await self._take(attempt)
            except OSError as error:  # out of processes, memory or descriptors: it may pass
                return Outcome("lost", failure=Failure("lost", f"no worker could be started: {error}"))
            try:
                outcome = await self._exchange(worker, attempt, channel)
            except BaseException:
                await worker.end()
                raise
            if worker.is_spent:
                await worker.end()
            else:
                self._idle.append(worker)
            return outcome

    async def close(self) -> None:
        workers, self._idle = self._idle, []
        for worker in workers:
            worker.say_goodbye()
        await asyncio.gather(*(self._part_from(worker) for worker in workers))

    async def _part_from(self, worker: _Worker) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await worker.child.exited()
        except TimeoutError:
            pass
        await worker.end()

    async def _take(self, attempt: Attempt) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if not worker.is_spent and worker.child.is_alive:
                return worker
            await worker.end()
        return await self._start_worker(attempt)

    async def _start_worker(self, attempt: Attempt) -> _Worker:
        agent, loop = self._agent, asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        log = open_log(attempt.log_path)
        try:
            child = Child(
                # -P: a `json.py` of the user's in the working directory must not become ours.
                [sys.executable, "-P", "-m", "agentrun.executors.workers.worker", str(theirs.fileno())],
                guardian=self._guardian,
                environ={**os.environ, **self._environ},
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
        worker = _Worker(child)
        try:
            await loop.create_unix_connection(lambda: worker, sock=ours)
        except BaseException:
            ours.close()
            await child.end()
            raise
        worker.send(
            {
                "base": str(self._job.base),
                "reference": agent.reference,
                "is_main": agent.is_main,
                "is_class": agent.kind == "class",
                "wants_ctx": agent.wants_ctx,
                "carry": self._job.carry,
                "sys_path": sys.path,
            }
        )
        return worker

    async def _exchange(self, worker: _Worker, attempt: Attempt, channel: Channel) -> Outcome:
        allowed = attempt.timeout_seconds
        if allowed is not None and not worker.is_ready:
            allowed = max(allowed, LOAD_SECONDS)
        try:
            async with asyncio.timeout(allowed) as clock:
                worker.send(describe_attempt(attempt))
                return await self._converse(worker, attempt, channel, clock)
        except TimeoutError:
            if not clock.expired():
                raise
            worker.is_spent = True
            doing = f"timed out after {attempt.timeout_seconds:g} s"
            if not worker.is_ready:
                doing = f"loading the agent took more than {allowed:g} s"
            return Outcome("failed", failure=Failure("timeout", doing))
        except EOFError:
            worker.is_spent = True
            return Outcome("lost", failure=Failure("lost", await _obituary(worker, attempt)))

    async def _converse(self, worker: _Worker, attempt: Attempt, channel: Channel, clock: asyncio.Timeout) -> Outcome:
        while True:
            message = await worker.receive()
            if message["type"] == "ready":
                worker.is_ready = True
                if attempt.timeout_seconds is not None:
                    clock.reschedule(asyncio.get_running_loop().time() + attempt.timeout_seconds)
            elif message["type"] == "outcome":
                worker.is_spent = message["ends"]
                failure = message["failure"]
                return Outcome(
                    message["kind"],
                    output=await worker.receive(),
                    failure=None if failure is None else Failure.from_json(failure),
                    made_files=message["made_files"],
                )
            else:
                worker.send(await channel(message))


async def _obituary(worker: _Worker, attempt: Attempt) -> str:
    try:
        async with asyncio.timeout(2):
            code = await worker.child.exited()
    except TimeoutError:
        return "the worker closed its connection to the runner"
    said = describe_exit(code)
    if code == -9:
        said += "; perhaps for want of memory"
    elif code is not None and code >= 0 and (line := last_line(attempt.log_path)):
        said += f": {line}"
    return f"the worker died: {said}"


class _Worker(Peer):
    """The runner's end of one worker."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.is_ready = False
        self._transport: asyncio.WriteTransport
        self._messages: deque[Any] = deque()

    def send(self, message: dict[str, Any]) -> None:
        self._transport.write(pack(message))

    async def receive(self) -> Any:
        """The next message; EOFError when there will be none."""
        while not self._messages:
            await self._more()
        return self._messages.popleft()

    def say_goodbye(self) -> None:
        if not self._transport.is_closing():
            self._transport.write_eof()

    def _hang_up(self) -> None:
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
            self._messages.append(unpack(kind, self._data[HEADER.size : end]))
            del self._data[:end]
        if self._messages:
            self._wake()

"""The four boundaries at which messages are disturbed; each gives the real executor, with faults in its way.

Workers are forked off a warm process, and programs are shells that hand their streams to a thread of ours: so hundreds
of them can be ended in a few seconds. The runner sees real processes, sockets and pipes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.messages import Message, Refused, Reply
from agentrun.executors.port import Setting
from agentrun.executors.programs.channel_socket import SOCKET_NAME
from agentrun.executors.programs.once import ProgramExecutor
from agentrun.executors.programs.protocol import CHANNEL_VARIABLE
from agentrun.executors.programs.runner_connection import CallError, RunnerConnection
from agentrun.executors.programs.serve import ServeExecutor
from agentrun.executors.threads import ThreadExecutor
from agentrun.executors.workers.executor import WorkerExecutor
from agentrun.executors.workers.frames import HEADER
from agentrun.system.guardian import ATTEMPT_VARIABLE
from crash.faulty import DELAY_SECONDS, Faults, Read, close, forward
from crash.wires import Boundary, Setup, note, work_by
from crash.zygote import Zygote

# ---- workers

LOAD_SECONDS = 2.0
STAND_IN = ("bash", "-c", 'exec cat <&"$0" >/dev/null')
"""The process that the runner knows as its worker: it lives as long as the connection."""


@contextmanager
def workers(setup: Setup) -> Iterator[WorkerExecutor]:
    with Zygote(setup.base) as zygote:

        def connect() -> tuple[socket.socket, socket.socket]:
            runner, ours = socket.socketpair()
            worker, theirs = socket.socketpair()
            stand_in, its_life = socket.socketpair()
            zygote.start_worker(worker)
            _between(setup.faults, ours, theirs, lambda: close(ours, theirs, its_life))
            return runner, stand_in

        yield WorkerExecutor(
            setup.job, setup.agent, Setting(None, {}), connect=connect, command=STAND_IN, load_seconds=LOAD_SECONDS
        )


def _between(faults: Faults, runner: socket.socket, worker: socket.socket, then: Callable[[], None]) -> None:
    """Forward frames both ways. The first one, which names the agent, belongs to no attempt and is left alone."""
    first = _frames(runner)
    outcome = b""

    def start() -> None:
        try:
            worker.sendall(first())
        except OSError:
            then()
            return
        forward(faults, "to the worker", _frames(runner), to_worker, then=then)

    def to_worker(frame: bytes) -> None:
        if outcome and faults.strikes("over", share=0.5):
            runner.sendall(outcome)
        worker.sendall(frame)

    def to_runner(frame: bytes) -> None:
        nonlocal outcome
        if b'"type":"outcome"' in frame:
            outcome = frame
        runner.sendall(frame)

    forward(faults, "to the runner", _frames(worker), to_runner, then=then)
    threading.Thread(target=start, daemon=True).start()


def _frames(connection: socket.socket) -> Read:
    def receive(size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = connection.recv(size - len(data))
            if not chunk:
                raise OSError("it is closed")
            data += chunk
        return data

    def read() -> bytes:
        header = receive(HEADER.size)
        return header + receive(sum(HEADER.unpack(header)[1:]))

    return read


# ---- programs

GREETING = """
mkfifo "$HUB/in.$$" "$HUB/out.$$"
echo "$$ $AGENTRUN_ATTEMPT_ID $AGENTRUN_ITEM_KEY $AGENTRUN_ATTEMPT" >"$HUB/hello"
"""
PROGRAM = GREETING + 'output=$(cat "$HUB/out.$$"); echo "$output"; [ "$output" != null ] || exit 75\n'
SERVER = GREETING + 'cat "$HUB/out.$$" & exec cat >"$HUB/in.$$"\n'


@contextmanager
def _hub(setup: Setup, script: str, meet: Callable[[Path, int, list[str]], None]) -> Iterator[Setting]:
    """Programs that greet us are met in threads; what is written to `out` is their standard output."""
    hub = setup.base / "hub"
    hub.mkdir()
    (setup.base / "program.sh").write_text(script)
    os.mkfifo(hub / "hello")
    # For reading and writing: there is no end of file between two programs.
    hello = os.fdopen(os.open(hub / "hello", os.O_RDWR), buffering=1)

    def greet() -> None:
        for line in hello:
            pid, *words = line.split()
            threading.Thread(target=meet, args=(hub, int(pid), words), daemon=True).start()

    threading.Thread(target=greet, daemon=True).start()
    yield Setting(None, {"HUB": str(hub)}, setup.folder)


def _open_fifo(path: Path, pid: int) -> int:
    """For writing, once its reader is there; OSError if the program has gone."""
    while True:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            os.kill(pid, 0)
            time.sleep(0.001)
        else:
            os.set_blocking(fd, True)
            return fd


@contextmanager
def programs(setup: Setup) -> Iterator[ProgramExecutor]:
    proxy = socket.socket(socket.AF_UNIX)
    path = str(setup.base / "proxy.sock")
    proxy.bind(path)
    proxy.listen(200)

    def accept() -> None:
        while True:
            try:
                program, _ = proxy.accept()
            except OSError:
                return
            runner = socket.socket(socket.AF_UNIX)
            runner.connect(str(setup.folder / SOCKET_NAME))
            ends = runner, program
            forward(setup.faults, "to the runner", program.makefile("rb").readline, runner.sendall, then=_closes(ends))
            forward(setup.faults, "to the program", runner.makefile("rb").readline, program.sendall, then=_closes(ends))

    threading.Thread(target=accept, daemon=True).start()

    def meet(hub: Path, pid: int, words: list[str]) -> None:
        attempt_id, key, attempt = words
        environ = {CHANNEL_VARIABLE: path, ATTEMPT_VARIABLE: attempt_id}
        try:
            with RunnerConnection(environ) as runner:
                output = work_by(runner.call, setup.base, key, int(attempt), serves=False)
                fd = _open_fifo(hub / f"out.{pid}", pid)
                os.write(fd, json.dumps(output).encode())
                os.close(fd)
                if output is not None and setup.faults.strikes("forked", share=1):
                    _speak_late(setup, key, runner.call)
            if output is not None and setup.faults.strikes("over", share=1):
                _speak_late(setup, key, lambda message: RunnerConnection(environ).call(message))
        except (OSError, CallError, KeyError, AssertionError):  # the program has been killed, or must be
            pass

    with _hub(setup, PROGRAM, meet) as setting, proxy:
        yield ProgramExecutor(setup.job, setup.agent, setting)


def _closes(ends: tuple[socket.socket, socket.socket]) -> Callable[[], None]:
    return lambda: close(*ends)


def _speak_late(setup: Setup, key: str, call: Callable[[dict[str, Any]], object]) -> None:
    """A process that an attempt left behind speaks when its item is settled."""
    if setup.settled(key).wait(10 * DELAY_SECONDS):
        try:
            reply = call({"type": "usage", "cost": 1000})
        except CallError:
            return
        setup.wrong.append(f"{key} is settled, and a late message was answered {reply}")


# ---- programs that serve


@contextmanager
def servers(setup: Setup) -> Iterator[ServeExecutor]:
    def meet(hub: Path, pid: int, words: list[str]) -> None:
        try:
            with open(hub / f"in.{pid}", "rb") as lines, os.fdopen(_open_fifo(hub / f"out.{pid}", pid), "wb", 0) as out:
                Server(setup, lines.readline, out.write).run()
        except (OSError, KeyError, AssertionError):
            # As a program that has read something that it cannot trust.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    with _hub(setup, SERVER, meet) as setting:
        yield ServeExecutor(setup.job, setup.agent, setting)


class Server:
    """A program that serves. It counts its lines where only that tells: a line that comes twice has the same id."""

    def __init__(self, setup: Setup, read: Read, write: Callable[[bytes], object]) -> None:
        self._setup, self._faults = setup, setup.faults
        self._read, self._write = read, write
        self._counts = setup.faults.kind in ("dropped", "doubled")
        self._arrived: list[bytes] = []
        self._outcome = b""
        self._of_child = b""

    def run(self) -> None:
        while item := self._receive():
            assert item["type"] == "item"
            if self._outcome and self._faults.strikes("over", share=0.5):
                self._write(self._outcome)
            self._write(self._of_child)
            self._of_child = b""
            self._work(item)

    def _work(self, item: dict[str, Any]) -> None:
        said = 0

        def address() -> dict[str, Any]:
            nonlocal said
            said += 1
            return {"id": item["id"], "no": said} if self._counts else {"id": item["id"]}

        def call(message: dict[str, Any]) -> dict[str, Any]:
            sent = address()
            self._send({**message, **sent})
            reply = self._receive()
            assert {name: reply.get(name) for name in sent} == sent and "error" not in reply
            return reply

        output = work_by(call, self._setup.base, item["key"], item["attempt"], serves=True)
        outcome = {"type": "done" if output is not None else "failed", "output": output, **address()}
        if output is not None and self._faults.strikes("forked", share=1):
            # A child, which has made an output of its own, says what its parent says: before it, after it, or when the
            # next item is there.
            of_child = [*output[:1], "child", *output[2:]]
            note(self._setup.base, item["key"], "returns", *of_child[1:])
            line = json.dumps({**outcome, "output": of_child}).encode() + b"\n"
            match self._faults.pick(3):
                case 0:
                    self._write(line)
                case 1:
                    threading.Timer(self._faults.pick(5) / 1000, self._write_late, [line]).start()
                case _:
                    self._of_child = line
        self._outcome = json.dumps(outcome).encode() + b"\n"
        self._send(outcome)

    def _write_late(self, line: bytes) -> None:
        with suppress(OSError, ValueError):  # the program may have been replaced
            self._write(line)

    def _send(self, value: dict[str, Any]) -> None:
        self._faults.pass_on("to the runner", json.dumps(value).encode() + b"\n", lambda line: void(self._write(line)))

    def _receive(self) -> dict[str, Any]:
        while not self._arrived:
            line = self._read()
            if not line:
                return {}
            self._faults.pass_on("to the program", line, self._arrived.append)
        found: dict[str, Any] = json.loads(self._arrived.pop(0))
        return found


def void(value: object) -> None:
    pass


# ---- threads


@contextmanager
def threads(setup: Setup) -> Iterator[FaultyThreads]:
    yield FaultyThreads(setup)


class FaultyThreads(ThreadExecutor):
    """Threads whose channel is disturbed; it is called on the loop."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.job, setup.agent)
        self._setup, self._faults = setup, setup.faults
        self._last: list[Message] = []
        self._held: list[tuple[Message, Channel, asyncio.Future[Reply]]] = []

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        over = asyncio.Event()
        try:
            return await super().run(attempt, lambda message: self._pass_on(message, channel, over))
        finally:
            over.set()

    async def _pass_on(self, message: Message, channel: Channel, over: asyncio.Event) -> Reply:
        faults = self._faults
        if faults.strikes("dropped"):
            await over.wait()
            raise TimeoutError("nobody answered")
        if faults.strikes("doubled"):
            await channel(message)
        elif faults.strikes("delayed"):
            await over.wait()
            # One turn, in which the runner notes that the attempt is over.
            await asyncio.sleep(0.01)
            reply = await channel(message)
            if not isinstance(reply, Refused):
                self._setup.wrong.append(f"{message} came when its attempt was over, and was answered {reply}")
            return reply
        elif self._last and faults.strikes("over"):
            await channel(self._last[0])
        elif faults.kind == "swapped":
            return await self._swap(message, channel)
        self._last[:] = [message]
        return await channel(message)

    async def _swap(self, message: Message, channel: Channel) -> Reply:
        if self._held:
            other, others_channel, reply = self._held.pop()
            answers = await asyncio.gather(channel(other), others_channel(message))
            if not reply.done():
                reply.set_result(answers[0])
            return answers[1]
        if not self._faults.strikes("swapped", share=0.04):
            return await channel(message)
        held = (message, channel, asyncio.get_running_loop().create_future())
        self._held.append(held)
        await asyncio.wait({held[2]}, timeout=0.1)
        if held in self._held:
            self._held.remove(held)
            self._faults.count -= 1
            return await channel(message)
        answer: Awaitable[Reply] = held[2]
        return await answer


BOUNDARIES: dict[str, Boundary] = {"worker": workers, "program": programs, "serve": servers, "thread": threads}

"""Messages that are not the attempt's next: never taken for an answer, and the end of whoever sent them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.agents.attempt import Ended, Outcome
from agentrun.agents.messages import KnownStep, Message, Received, Reply, StepGet
from agentrun.executors.port import Setting
from agentrun.executors.workers.executor import WorkerExecutor
from agentrun.executors.workers.frames import HEADER, pack, unpack
from agentrun.system.guardian import read_process

if TYPE_CHECKING:
    from unit.executors.conftest import Bench


class Between:
    """Between the runner and a worker: forwards everything, and can say something in the worker's name."""

    def __init__(self) -> None:
        self.runner: socket.socket
        self.worker: socket.socket
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.is_dropped: Callable[[Any], bool] = lambda frame: False

    def connect(self) -> tuple[socket.socket, socket.socket]:
        theirs, self.runner = socket.socketpair()
        worker, self.worker = socket.socketpair()
        self._ends += [self.runner, self.worker]
        for ends in ((self.runner, self.worker), (self.worker, self.runner)):
            self._threads.append(thread := threading.Thread(target=self._forward, args=ends, daemon=True))
            thread.start()
        return theirs, worker

    def say(self, value: Any, output: bytes = b"") -> None:
        self.runner.sendall(pack(value, output))

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            with source.makefile("rb") as file:
                while len(header := file.read(HEADER.size)) == HEADER.size:
                    kind, size, output_size = HEADER.unpack(header)
                    body, output = file.read(size), file.read(output_size)
                    if not self.is_dropped(unpack(kind, body, output).value):
                        target.sendall(header + body + output)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # a side has gone
            pass

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


@pytest.fixture
def between(bench: Bench) -> Iterator[Between]:
    made = Between()
    yield made
    made.close()


@asynccontextmanager
async def workers(bench: Bench, between: Between, source: str) -> AsyncIterator[WorkerExecutor]:
    (bench.folder / "executors_agent.py").write_text(source)
    job = bench.job(agent="executors_agent.py:agent")
    executor = WorkerExecutor(job, load_agent(job), Setting(None, {}), connect=between.connect)
    try:
        yield executor
    finally:
        await executor.close()


PID = "import os\ndef agent(item):\n    return os.getpid()\n"


def test_a_worker_that_sent_something_unasked_gets_no_attempt(bench: Bench, between: Between) -> None:
    async def scenario() -> None:
        async with workers(bench, between, PID) as executor:
            pid = bench.output(await executor.run(bench.attempt(), bench.channel))
            # The next attempt's own, as it would be from a child of the agent: even that comes before it was asked for.
            following = bench.attempt()
            ended = Ended.of(Outcome("done"), attempt_id=following.id, no=1, ends=False)
            between.say(ended.as_json(), b'"of nobody"')
            assert bench.output(await executor.run(following, bench.channel)) not in (pid, "of nobody")
            assert read_process(pid) is None

    bench.run(scenario())


def test_an_outcome_of_another_attempt_ends_the_worker_and_the_attempt_is_lost(bench: Bench, between: Between) -> None:
    source = "import os, time\ndef agent(item):\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(60)\n"

    async def scenario() -> None:
        async with workers(bench, between, source) as executor:
            running = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
            pid = bench.folder / "pid"
            await bench.eventually(lambda: pid.exists() and bool(pid.read_text()), "the worker at work")
            ended = Ended.of(Outcome("done"), attempt_id=bench.attempt().id, no=1, ends=False)
            between.say(ended.as_json(), b'"another\'s"')
            outcome = await running
            assert outcome.kind == "lost" and "not this attempt's" in bench.cause(outcome)
            assert read_process(int(pid.read_text())) is None

    bench.run(scenario())


def test_a_message_that_is_lost_before_the_outcome_is_missed(bench: Bench, between: Between) -> None:
    source = "def agent(item, ctx):\n    ctx.usage(cost=1)\n    return 1\n"

    def answer_in_place_of_the_runner(frame: Any) -> bool:
        if frame.get("type") != "usage":
            return False
        between.worker.sendall(pack({"id": frame["id"], "no": frame["no"]}))
        return True

    between.is_dropped = answer_in_place_of_the_runner

    async def scenario() -> None:
        async with workers(bench, between, source) as executor:
            outcome = await executor.run(bench.attempt(), bench.channel)
            assert outcome.kind == "lost" and "did not arrive" in bench.cause(outcome)

    bench.run(scenario())
    assert bench.messages == []


@pytest.mark.parametrize("wrong", [{"id": "0123456789abcdef"}, {"no": 7}, {"id": None, "no": None}])
def test_a_reply_to_another_message_ends_the_worker_whatever_its_agent_would_do(
    bench: Bench, between: Between, wrong: dict[str, Any]
) -> None:
    source = """
def agent(item, ctx):
    try:
        ctx.progress("half way")
    except BaseException:
        pass
    return "swallowed"
"""

    def change(frame: Any) -> bool:
        if "no" not in frame or "type" in frame:
            return False
        between.worker.sendall(pack({**frame, **wrong}))
        return True

    between.is_dropped = change

    async def scenario() -> None:
        async with workers(bench, between, source) as executor:
            outcome = await executor.run(bench.attempt(), bench.channel)
            assert outcome.kind == "lost" and "reply is not to this attempt's last message" in bench.cause(outcome)

    bench.run(scenario())


def test_an_attempt_that_arrives_twice_is_run_once(bench: Bench, between: Between) -> None:
    def double(frame: Any) -> bool:
        if frame.get("type") == "attempt":
            between.worker.sendall(pack(frame))
        return False

    between.is_dropped = double
    source = "def agent(item):\n    open('ran', 'a').write('x')\n    return 1\n"

    async def scenario() -> None:
        async with workers(bench, between, source) as executor:
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == 1

    bench.run(scenario())
    assert (bench.folder / "ran").read_text() == "x"


@pytest.mark.parametrize("isolation", ["loop", "thread"])
def test_messages_arrive_in_the_order_in_which_they_were_sent(bench: Bench, isolation: str) -> None:
    source = """
        def agent(item, ctx):
            for n in range(3):
                ctx.progress(f"before {n}")
                WAIT(ctx.step(f"step {n}", str))
                ctx.usage(cost=n)
    """.replace("WAIT", "await " if isolation == "loop" else "")
    heard: list[Message] = []

    async def channel(message: Message) -> Reply:
        heard.append(message)
        await asyncio.sleep(0)
        return KnownStep(0, found=False) if isinstance(message, StepGet) else Received()

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            assert (await executor.run(bench.attempt(), channel)).kind == "done"

    bench.run(scenario())
    assert [message.no for message in heard] == list(range(1, 13))
    assert [type(message).__name__ for message in heard] == ["Progress", "StepGet", "StepPut", "Used"] * 3

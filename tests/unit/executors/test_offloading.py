"""Functions that async agents run in threads: an attempt is over when they are."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import agentrun
from agentrun.agents.agent import agent_from_function
from agentrun.executors import loop
from agentrun.executors.port import Executor
from unit.launch.bench import idle
from waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from unit.executors.conftest import Bench

Agent = Callable[[agentrun.Item], Awaitable[Any]]
Offload = Callable[[Callable[[], None]], Awaitable[None]]


class Held:
    """A function that returns when it is let go."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(PATIENCE_SECONDS)
        self.ended.set()


@pytest.fixture
def held() -> Held:
    return Held()


@contextlib.asynccontextmanager
async def opened(bench: Bench, agent: Agent, held: Held | None = None) -> AsyncIterator[Executor]:
    job = bench.job()
    try:
        async with bench.opened(job, agent_from_function(agent, job)) as executor:
            yield executor
    finally:
        if held is not None:
            held.may_end.set()  # whatever was found: the thread would hold up the end


async def by_to_thread(function: Callable[[], None]) -> None:
    await asyncio.to_thread(function)


async def by_the_default_executor(function: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(executor=None, func=function)


async def by_an_executor_of_its_own(function: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), function)


OFFLOADS = [by_to_thread, by_the_default_executor, by_an_executor_of_its_own]


@pytest.mark.parametrize("offload", OFFLOADS)
def test_after_a_timeout_the_attempt_is_over_when_its_thread_is(bench: Bench, held: Held, offload: Offload) -> None:
    is_cancelled = asyncio.Event()

    async def agent(item: agentrun.Item) -> None:
        try:
            await offload(held)
        finally:
            is_cancelled.set()

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            running = asyncio.ensure_future(executor.run(bench.attempt(timeout_seconds=0.1), bench.channel))
            await is_cancelled.wait()
            await idle()
            assert held.begun.is_set() and not running.done()
            held.may_end.set()
            outcome = await running
            assert held.ended.is_set()
            assert outcome.failure is not None
            assert (outcome.failure.message, outcome.failure.code) == ("timed out after 0.1 s", "")

    bench.run(scenario())


@pytest.mark.parametrize("kind", ["failed", "waiting"])
def test_an_attempt_that_may_be_followed_by_another_waits_for_its_threads(bench: Bench, held: Held, kind: str) -> None:
    has_raised = asyncio.Event()

    async def agent(item: agentrun.Item) -> None:
        beside = asyncio.ensure_future(asyncio.to_thread(held))
        await bench.eventually(held.begun.is_set, "the thread has begun")
        beside.cancel()
        has_raised.set()
        raise agentrun.Retry("again") if kind == "failed" else agentrun.errors.Parked("asked")

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            running = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
            await has_raised.wait()
            await idle()
            assert not running.done()
            held.may_end.set()
            assert (await running).kind == kind
            assert held.ended.is_set()

    bench.run(scenario())


def test_an_attempt_that_is_done_waits_for_nothing(bench: Bench, held: Held) -> None:
    beside: list[asyncio.Future[None]] = []

    async def agent(item: agentrun.Item) -> str:
        beside.append(asyncio.ensure_future(asyncio.to_thread(held)))
        await bench.eventually(held.begun.is_set, "the thread has begun")
        return "ok"

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == "ok"
            assert not held.ended.is_set()
            held.may_end.set()
            await beside[0]

    bench.run(scenario())


def test_a_thread_that_does_not_end_costs_its_item_the_retry_and_keeps_its_slot(
    bench: Bench, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CANCEL_SECONDS", 0.1)

    async def agent(item: agentrun.Item) -> str:
        if item.data == "hang":
            await asyncio.to_thread(held)
        return "ok"

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            outcome = await executor.run(bench.attempt("hang", timeout_seconds=0.1), bench.channel)
            assert outcome.failure is not None and outcome.failure.code == "thread-timeout"
            assert "a function that it runs in a thread did not end" in bench.cause(outcome)
            following = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
            await idle()
            assert not following.done()
            held.may_end.set()
            assert bench.output(await following) == "ok"

    bench.run(scenario())


def test_a_thread_that_does_not_end_does_not_hold_up_a_stop(
    bench: Bench, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "STOP_SECONDS", 0.1)

    async def agent(item: agentrun.Item) -> None:
        await asyncio.to_thread(held)

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            running = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
            await bench.eventually(held.begun.is_set, "the thread has begun")
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled() and not held.ended.is_set()
            held.may_end.set()

    bench.run(scenario())


def test_what_still_waits_for_a_thread_when_its_attempt_ends_never_begins(bench: Bench, held: Held) -> None:
    late = threading.Event()
    beside: list[asyncio.Future[Any]] = []

    async def agent(item: agentrun.Item) -> None:
        # The pool has one thread, which is taken.
        beside.extend(asyncio.ensure_future(asyncio.to_thread(one)) for one in (held, late.set))
        await bench.eventually(held.begun.is_set, "the thread has begun")
        raise agentrun.Retry("again")

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            async with opened(bench, agent, held) as executor:
                running = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
                await bench.eventually(held.begun.is_set, "the thread has begun")
                await idle()
                held.may_end.set()
                assert (await running).kind == "failed"
                left = await asyncio.gather(*beside, return_exceptions=True)
        assert not late.is_set()
        assert isinstance(left[1], RuntimeError) and str(left[1]) == "this attempt is over"

    bench.run(scenario())


def test_a_name_lookup_is_not_waited_for(bench: Bench, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*asked: Any) -> list[Any]:
        held()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def agent(item: agentrun.Item) -> None:
        await asyncio.get_running_loop().getaddrinfo("example.invalid", 80)

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            outcome = await executor.run(bench.attempt(timeout_seconds=0.1), bench.channel)
            assert outcome.failure is not None and (outcome.failure.origin, outcome.failure.code) == ("timeout", "")
            assert not held.ended.is_set()
            held.may_end.set()

    bench.run(scenario())


def test_a_users_own_loop_keeps_its_executor_and_is_as_it_was_afterwards(bench: Bench) -> None:
    names: list[str] = []

    def note() -> None:
        names.append(threading.current_thread().name)

    async def agent(item: agentrun.Item) -> None:
        await asyncio.to_thread(note)

    async def scenario() -> None:
        own = asyncio.get_running_loop()
        before = dict(vars(own))
        with ThreadPoolExecutor(1, thread_name_prefix="users") as pool:
            own.set_default_executor(pool)
            async with opened(bench, agent) as executor, opened(bench, agent) as other:
                for one in (executor, other):
                    assert (await one.run(bench.attempt(), bench.channel)).kind == "done"
                await other.close()
                assert "run_in_executor" in vars(own)
                await asyncio.to_thread(note)
        assert names == ["users_0"] * 3
        assert "run_in_executor" not in before and "run_in_executor" not in vars(own)

    bench.run(scenario())


def test_a_loop_that_somebody_else_watches_is_given_back_to_them(bench: Bench) -> None:
    seen: list[Any] = []

    async def agent(item: agentrun.Item) -> str:
        return await asyncio.to_thread(str, "ok")

    async def scenario() -> None:
        own = asyncio.get_running_loop()
        inner = own.run_in_executor

        def watching(executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
            seen.append(function)
            return inner(executor, function, *args)

        own.run_in_executor = watching  # type: ignore[assignment, method-assign]
        async with opened(bench, agent) as executor:
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == "ok"
        assert own.run_in_executor is watching and len(seen) == 1

    bench.run(scenario())


def test_an_attempt_that_cancels_itself_again_and_again_still_waits_for_its_threads(bench: Bench, held: Held) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def agent(item: agentrun.Item) -> None:
        beside = asyncio.ensure_future(asyncio.to_thread(held))
        await bench.eventually(held.begun.is_set, "the thread has begun")
        beside.cancel()
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        task.cancel()
        await asyncio.sleep(0)

    async def scenario() -> None:
        async with opened(bench, agent, held) as executor:
            running = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
            await bench.eventually(lambda: bool(tasks), "it has cancelled itself")
            await idle()
            tasks[0].cancel()
            await idle()
            assert not running.done()
            held.may_end.set()
            assert (await running).kind == "failed"
            assert held.ended.is_set()

    bench.run(scenario())


def test_a_loop_without_attributes_of_its_own_can_be_used(bench: Bench) -> None:
    class Fixed(asyncio.SelectorEventLoop):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "run_in_executor":
                raise AttributeError(name)
            super().__setattr__(name, value)

    async def agent(item: agentrun.Item) -> str:
        return await asyncio.to_thread(str, "ok")

    async def scenario() -> None:
        async with opened(bench, agent) as executor:
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == "ok"

    with asyncio.Runner(loop_factory=Fixed) as runner:
        runner.run(scenario())

"""Python agents: on the loop, in threads, in worker processes. Each behaviour with a real agent file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from agentrun.agents import agent_from_function, load_agent
from agentrun.errors import AgentError
from agentrun.executors.guardian import read_process
from agentrun.executors.open import open_executor
from agentrun.executors.port import Attempt, Executor, Outcome
from agentrun.executors.prints import capture_prints
from agentrun.item import Item
from agentrun.job import ItemsSpec, Job

ISOLATIONS = ["loop", "thread", "process"]


@pytest.fixture(autouse=True)
def _interpreter_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("executors_agent"):
            del sys.modules[name]


class Bench:
    """A folder with an agent in it, and its executor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[dict[str, Any]] = []
        self.environ: dict[str, str] = {}

    def job(self, **changes: Any) -> Job:
        values: dict[str, Any] = {
            "name": "test",
            "base": self.folder,
            "items": ItemsSpec(kind="python", pattern=""),
            "params": {"customer": "acme"},
            "output": "out.jsonl",
        }
        return Job(**{**values, **changes})

    @contextlib.asynccontextmanager
    async def executor(self, source: str, isolation: str, **changes: Any) -> AsyncIterator[Executor]:
        """For `def agent(…)` in the source; on the loop it is made async."""
        source = dedent(source)
        if isolation == "loop":
            source = source.replace("def agent(", "async def agent(").replace("def __call__(", "async def __call__(")
        elif isolation == "thread":
            changes["isolation"] = "thread"
        (self.folder / "executors_agent.py").write_text(source)
        name = "Agent" if "class Agent" in source else "agent"
        job = self.job(agent=f"executors_agent.py:{name}", **changes)
        with capture_prints():
            agent = load_agent(job)
            assert agent.isolation == isolation
            opened = open_executor(job, agent, guardian=None, environ=self.environ)
            try:
                await opened.start()
                yield opened
            finally:
                await opened.close()

    def attempt(self, data: Any = None, **changes: Any) -> Attempt:
        values: dict[str, Any] = {
            "item": Item(0, "k", data),
            "generation": 0,
            "launch": 1,
            "number": 1,
            "run_id": "r",
            "params": {"customer": "acme"},
            "carry": None,
            "timeout_seconds": 30.0,
            "log_path": self.folder / "slot.log",
        }
        return Attempt(**{**values, **changes})

    async def channel(self, message: dict[str, Any]) -> dict[str, Any]:
        self.messages.append(message)
        return {}

    def log(self) -> str:
        return (self.folder / "slot.log").read_text()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def output(outcome: Outcome) -> Any:
    assert outcome.kind == "done", outcome
    return json.loads(outcome.output)


def cause(outcome: Outcome) -> str:
    assert outcome.failure is not None
    return outcome.failure.cause


def run(scenario: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(main())


async def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_agent_gets_its_item_and_context_and_returns_its_output(bench: Bench, isolation: str) -> None:
    source = """
        def agent(item, ctx):
            ctx.progress("half way")
            ctx.log("noted", 1)
            return [item.key, item.data["n"], ctx.params["customer"], ctx.attempt, ctx.key("send")]
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            attempt = bench.attempt({"n": 2**53}, number=3)
            first, second = [output(await executor.run(attempt, bench.channel)) for _ in range(2)]
            assert first == second
            assert first[:4] == ["k", 2**53, "acme", 3] and len(first[4]) == 36
            assert bench.messages == [{"type": "progress", "text": "half way"}] * 2
            assert bench.log() == "noted 1\n"  # emptied in between

    run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_is_printed_or_logged_goes_to_the_items_log_only(
    bench: Bench, isolation: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
        import logging, sys
        logger = logging.getLogger("executors_agent")
        logger.addHandler(logging.StreamHandler())
        logger.propagate = False

        def agent(item, ctx):
            print("printed")
            ctx.log("noted")
            print("to stderr \\ud800", file=sys.stderr)
            sys.stdout.buffer.write(b"bytes\\n")
            sys.stdout.buffer.flush()
            logger.warning("logged")
            assert not sys.stdout.isatty()
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "printed\nnoted\nto stderr \\ud800\nbytes\nlogged\n"
            print("ours")

    run(scenario())
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("ours\n", "")


def test_what_an_agents_own_thread_prints_does_not_reach_our_output(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
        import asyncio
        def agent(item):
            await asyncio.get_running_loop().run_in_executor(None, print, "from a thread")
    """

    async def scenario() -> None:
        async with bench.executor(source, "loop") as executor:
            output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "from a thread\n"

    run(scenario())
    assert capfd.readouterr().out == ""


def test_what_c_code_and_child_processes_print_in_a_worker_is_caught(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
        import ctypes, os
        def agent(item):
            ctypes.CDLL(None).puts(b"from C")
            ctypes.CDLL(None).fflush(None)
            os.system("echo from a child")
    """

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "from C\nfrom a child\n"

    run(scenario())
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_an_agent_raises_is_an_outcome(bench: Bench, isolation: str) -> None:
    source = """
        import asyncio, sys
        import agentrun.errors as errors
        def agent(item):
            match item.data:
                case "value": raise ValueError("odd")
                case "skip": raise errors.Skip("empty")
                case "exit": sys.exit(2)
                case "cancelled": raise asyncio.CancelledError
                case "set": return {"a": [1, {2}]}
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            outcomes = {
                data: await executor.run(bench.attempt(data), bench.channel)
                for data in ("value", "skip", "exit", "cancelled", "set")
            }
        assert [outcome.kind for outcome in outcomes.values()] == ["failed", "skipped", "failed", "failed", "failed"]
        assert cause(outcomes["value"]) == "ValueError: odd"
        failure = outcomes["value"].failure
        assert failure is not None and "executors_agent.py" in failure.traceback
        assert "calls.py" not in failure.traceback
        assert cause(outcomes["skip"]) == "Skip: empty"
        assert "the agent called sys.exit(2)" in cause(outcomes["exit"])
        assert cause(outcomes["set"]) == "output.a[1] is a set, which JSON cannot hold"

    run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_big_items_and_outputs_pass(bench: Bench, isolation: str) -> None:
    async def scenario() -> None:
        async with bench.executor("def agent(item): return item.data * 2", isolation) as executor:
            size = 8 * 1024 * 1024
            assert len(output(await executor.run(bench.attempt("x" * size), bench.channel))) == 2 * size
            assert output(await executor.run(bench.attempt([1]), bench.channel)) == [1, 1]

    run(scenario())


def test_items_with_what_orjson_refuses_reach_a_worker_unchanged(bench: Bench) -> None:
    source = (
        "def agent(item): return [str(item.data), item.key == 'a\\udc80', str(item.path) == '/a\\udc80', item.line]"
    )
    item = Item(3, "a\udc80", 2**70, Path("/a\udc80"), "line")

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            found = output(await executor.run(bench.attempt(item=item), bench.channel))
            assert found == [str(2**70), True, True, "line"]

    run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_changed_carry_is_sent_with_a_settled_attempt_only(bench: Bench, isolation: str) -> None:
    source = """
        from agentrun.errors import Skip
        def agent(item, ctx):
            if item.data == "keep":
                return ctx.carry["n"]
            ctx.carry["n"] += 1
            if item.data == "fail":
                raise ValueError
            if item.data == "skip":
                raise Skip
            if item.data == "large":
                ctx.carry = "x" * 70_000
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation, carry=True) as executor:
            kinds = [
                (await executor.run(bench.attempt(data, carry={"n": 1}), bench.channel)).kind
                for data in ("keep", "fail", "large", "skip", "set")
            ]
        assert kinds == ["done", "failed", "failed", "skipped", "done"]
        assert bench.messages == [{"type": "carry", "value": {"n": 2}}] * 2

    run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_class_is_made_once_and_closed_at_the_end(bench: Bench, isolation: str) -> None:
    source = """
        class Agent:
            def __init__(self):
                self.count = 0
            def __call__(self, item, ctx):
                self.count += 1
                return self.count
            def close(self):
                open("closed", "a").write(str(self.count))
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            found = [output(await executor.run(bench.attempt(), bench.channel)) for _ in range(3)]
            assert found == [1, 2, 3]
            await asyncio.sleep(0)
        assert (bench.folder / "closed").read_text() == "3"

    with contextlib.chdir(bench.folder):
        run(scenario())


def test_a_class_that_cannot_be_made_is_told_before_any_item_on_the_loop(bench: Bench) -> None:
    source = "class Agent:\n    def __init__(self): raise OSError('no key')\n    def __call__(self, item): ..."

    async def scenario() -> None:
        with pytest.raises(AgentError, match="OSError: no key") as caught:
            async with bench.executor(source, "loop"):
                pass
        assert "executors_agent.py" in caught.value.traceback

    run(scenario())


# ---- timeouts and cancelling


@pytest.mark.parametrize("isolation", ["loop", "process"])
def test_after_a_timeout_nothing_of_the_attempt_is_alive(bench: Bench, isolation: str) -> None:
    source = """
        import asyncio, os, subprocess, time
        def agent(item):
            if item.data == "hang":
                daemon = subprocess.Popen(["sleep", "600"], start_new_session=True) if SYNC else None
                open("pids", "w").write(f"{os.getpid()} {daemon.pid if daemon else 0}")
                HANG
            return "ok"
    """
    is_sync = isolation == "process"
    source = source.replace("SYNC", str(is_sync))
    source = source.replace("HANG", "time.sleep(600)" if is_sync else "await asyncio.sleep(600)")

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            output(await executor.run(bench.attempt(), bench.channel))  # loaded: now the clock is the attempt's
            outcome = await executor.run(bench.attempt("hang", timeout_seconds=0.5), bench.channel)
            assert outcome.failure is not None
            assert (outcome.kind, outcome.failure.origin) == ("failed", "timeout")
            assert (outcome.failure.message, outcome.failure.code) == ("timed out after 0.5 s", "")
            if is_sync:
                pids = [int(pid) for pid in (bench.folder / "pids").read_text().split()]
                assert [read_process(pid) for pid in pids] == [None, None]
            assert output(await executor.run(bench.attempt(), bench.channel)) == "ok"

    with contextlib.chdir(bench.folder):
        run(scenario())


@pytest.mark.parametrize("isolation", ["loop", "process"])
def test_cancelling_ends_the_attempt(bench: Bench, isolation: str) -> None:
    source = """
        import asyncio, os, time
        def agent(item):
            try:
                open("pid", "w").write(str(os.getpid()))
                HANG
            finally:
                open("ended", "w").write("1")
    """
    source = source.replace("HANG", "time.sleep(600)" if isolation == "process" else "await asyncio.sleep(600)")

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            task = asyncio.create_task(executor.run(bench.attempt(), bench.channel))
            pid = bench.folder / "pid"
            await eventually(lambda: pid.exists() and pid.read_text() != "", "the attempt begins")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if isolation == "process":
                assert read_process(int(pid.read_text())) is None
            else:
                assert (bench.folder / "ended").exists()

    with contextlib.chdir(bench.folder):
        run(scenario())


def test_a_task_that_swallows_its_cancellation_is_cancelled_until_it_ends(bench: Bench) -> None:
    source = """
        import asyncio
        def agent(item):
            for _ in range(3):
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    print("swallowed")
            return "too late"
    """

    async def scenario() -> None:
        async with bench.executor(source, "loop") as executor:
            outcome = await executor.run(bench.attempt(timeout_seconds=0.05), bench.channel)
            assert outcome.failure is not None
            assert (outcome.failure.origin, outcome.failure.code) == ("timeout", "")
            assert bench.log() == "swallowed\n" * 3

    run(scenario())


def test_a_thread_that_timed_out_keeps_its_slot_until_it_returns(bench: Bench) -> None:
    release, live, most = threading.Event(), 0, 0

    def agent(item: Item, ctx: Any) -> str:
        nonlocal live, most
        live += 1
        most = max(most, live)
        if item.data == "hang":
            release.wait(30)
        live -= 1
        if item.data == "hang":
            ctx.log("too late")
        return "ok"

    async def scenario() -> None:
        job = bench.job(isolation="thread")
        executor = open_executor(job, agent_from_function(agent, job), guardian=None, environ={})
        outcome = await executor.run(bench.attempt("hang", timeout_seconds=0.05), bench.channel)
        assert outcome.failure is not None
        assert (outcome.failure.origin, outcome.failure.code) == ("timeout", "thread-timeout")
        following = asyncio.create_task(executor.run(bench.attempt(), bench.channel))
        done, _ = await asyncio.wait({following}, timeout=0.2)
        assert not done
        release.set()
        assert output(await following) == "ok"
        assert most == 1
        assert bench.log() == ""
        await executor.close()

    run(scenario())


# ---- worker processes


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the worker died: signal 11 (SIGSEGV)"),
        ("os._exit(3)", "the worker died: exit 3"),
        # A forked child holds the worker's end of the connection.
        ("os.fork() and os._exit(3) or time.sleep(600)", "the worker died: exit 3"),
    ],
)
def test_a_worker_that_dies_takes_one_attempt_and_is_replaced(bench: Bench, end: str, message: str) -> None:
    source = f"""
        import os, signal, time
        def agent(item):
            if item.data == "die":
                {end}
            return os.getpid()
    """

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            first = output(await executor.run(bench.attempt(), bench.channel))
            assert output(await executor.run(bench.attempt(), bench.channel)) == first
            outcome = await executor.run(bench.attempt("die"), bench.channel)
            assert outcome.kind == "lost"
            assert cause(outcome) == message
            assert output(await executor.run(bench.attempt(), bench.channel)) != first

    run(scenario())


def test_a_worker_has_the_jobs_folder_and_environment(bench: Bench) -> None:
    (bench.folder / "json.py").write_text("raise RuntimeError('not the one')")
    bench.environ["FROM_ENV_FILE"] = "1"
    source = (
        "import os\ndef agent(item): return [os.getcwd(), os.environ['FROM_ENV_FILE'], os.getsid(0) == os.getpid()]"
    )

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            found = output(await executor.run(bench.attempt(), bench.channel))
            assert found == [str(bench.folder.resolve()), "1", True]

    run(scenario())


def test_a_failure_to_load_in_the_worker_fails_the_attempt_with_the_users_traceback(bench: Bench) -> None:
    source = "import os\nif 'IN_WORKER' in os.environ:\n    input()\ndef agent(item): ..."
    bench.environ["IN_WORKER"] = "1"

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            for _ in range(2):
                outcome = await executor.run(bench.attempt(), bench.channel)
                assert outcome.kind == "failed" and outcome.failure is not None
                assert "EOFError" in outcome.failure.message
                assert "executors_agent.py" in outcome.failure.traceback

    run(scenario())


def test_at_most_concurrency_workers_are_started_and_they_are_used_again(bench: Bench) -> None:
    source = "import os, time\ndef agent(item):\n    time.sleep(0.01)\n    return os.getpid()"

    async def scenario() -> None:
        async with bench.executor(source, "process", concurrency=2) as executor:
            attempts = [bench.attempt(log_path=bench.folder / f"{n}.log") for n in range(8)]
            outcomes = await asyncio.gather(*(executor.run(a, bench.channel) for a in attempts))
            pids = {output(outcome) for outcome in outcomes}
            assert len(pids) == 2
        assert [read_process(pid) for pid in pids] == [None, None]
        assert os.getpid() not in pids

    run(scenario())

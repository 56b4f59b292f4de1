"""Timeouts and cancelling, and worker processes with their deaths."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentrun.agents.agent import agent_from_function
from agentrun.agents.failure import THREAD_TIMEOUT
from agentrun.executors.choice import open_executor
from agentrun.item import Item
from agentrun.system.guardian import Guardian, read_process

if TYPE_CHECKING:
    from unit.executors.conftest import Bench


@pytest.mark.parametrize("isolation", ["loop", "process"])
def test_after_a_timeout_nothing_of_the_attempt_is_alive(bench: Bench, isolation: str) -> None:
    source = """
        import asyncio, os, subprocess, time
        from pathlib import Path
        def agent(item):
            if item.data == "hang":
                daemon = subprocess.Popen(["sleep", "600"], start_new_session=True) if SYNC else None
                Path("pids").write_text(f"{os.getpid()} {daemon.pid if daemon else 0}")
                HANG
            return "ok"
    """
    is_sync = isolation == "process"
    source = source.replace("SYNC", str(is_sync))
    source = source.replace("HANG", "time.sleep(600)" if is_sync else "await asyncio.sleep(600)")

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            bench.output(await executor.run(bench.attempt(), bench.channel))  # loaded: now the clock is the attempt's
            outcome = await executor.run(bench.attempt("hang", timeout_seconds=0.5), bench.channel)
            assert outcome.failure is not None
            assert (outcome.kind, outcome.failure.origin) == ("failed", "timeout")
            assert (outcome.failure.message, outcome.failure.code) == ("timed out after 0.5 s", "")
            if is_sync:
                pids = [int(pid) for pid in (bench.folder / "pids").read_text().split()]
                assert [read_process(pid) for pid in pids] == [None, None]
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == "ok"

    bench.run(scenario())


@pytest.mark.parametrize("isolation", ["loop", "process"])
def test_cancelling_ends_the_attempt(bench: Bench, isolation: str) -> None:
    source = """
        import asyncio, os, time
        from pathlib import Path
        def agent(item):
            try:
                Path("pid").write_text(str(os.getpid()))
                HANG
            finally:
                Path("ended").write_text("1")
    """
    source = source.replace("HANG", "time.sleep(600)" if isolation == "process" else "await asyncio.sleep(600)")

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            task = asyncio.create_task(executor.run(bench.attempt(), bench.channel))
            pid = bench.folder / "pid"
            await bench.eventually(lambda: pid.exists() and pid.read_text() != "", "the attempt begins")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if isolation == "process":
                assert read_process(int(pid.read_text())) is None
            else:
                assert (bench.folder / "ended").exists()

    bench.run(scenario())


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

    bench.run(scenario())


def test_an_agent_that_cancels_its_own_task_has_failed(bench: Bench) -> None:
    source = """
        import asyncio
        def agent(item):
            if item.data == "cancel":
                asyncio.current_task().cancel()
                await asyncio.sleep(600)
            return "ok"
    """

    async def scenario() -> None:
        async with bench.executor(source, "loop") as executor:
            outcome = await executor.run(bench.attempt("cancel"), bench.channel)
            assert outcome.kind == "failed" and "CancelledError" in bench.cause(outcome)
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == "ok"

    bench.run(scenario())


STUBBORN = """
    import asyncio, time
    from pathlib import Path
    def note(word):
        with open("attempts", "a") as file:
            print(word, file=file)
    def wait():
        while not Path("enough").exists():
            time.sleep(0.01)
        note("end")
    def agent(item):
        note("begin")
        WAIT
        return "ok"
"""
WAITS = {"thread": "wait()", "loop": "await asyncio.to_thread(wait)"}
"""An attempt that cannot be ended: a thread of ours, or one of the agent's own."""


@pytest.mark.parametrize("isolation", WAITS)
def test_an_item_whose_cancelled_attempt_did_not_end_is_begun_again_only_after_it(bench: Bench, isolation: str) -> None:
    """A launch that continues after its lease ran out does that."""

    def noted() -> list[str]:
        path = bench.folder / "attempts"
        return path.read_text().split() if path.exists() else []

    async def scenario() -> None:
        async with bench.executor(STUBBORN.replace("WAIT", WAITS[isolation]), isolation, concurrency=2) as executor:
            first = asyncio.create_task(executor.run(bench.attempt(), bench.channel))
            await bench.eventually(lambda: noted() == ["begin"], "the attempt begins")
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            try:
                late = await executor.run(bench.attempt(timeout_seconds=0.05), bench.channel)
                assert late.failure is not None and late.failure.code == THREAD_TIMEOUT
                again = asyncio.create_task(executor.run(bench.attempt(), bench.channel))
                await asyncio.sleep(0.1)
                assert noted() == ["begin"]
            finally:
                (bench.folder / "enough").touch()
            assert bench.output(await again) == "ok"
            assert noted() == ["begin", "end"] * 2

    bench.run(scenario())


def test_a_thread_that_timed_out_keeps_its_slot_until_it_returns(bench: Bench) -> None:
    release, live, most = threading.Event(), 0, 0

    def agent(item: Item, ctx: Any) -> str:
        nonlocal live, most
        live += 1
        most = max(most, live)
        if item.data == "hang":
            release.wait(120)
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
        assert bench.output(await following) == "ok"
        assert most == 1
        assert bench.log() == ""
        await executor.close()

    bench.run(scenario())


# ---- worker processes


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
            bench.output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "from C\nfrom a child\n"

    bench.run(scenario())
    assert capfd.readouterr().out == ""


def test_items_with_what_orjson_refuses_reach_a_worker_unchanged(bench: Bench) -> None:
    source = (
        "def agent(item): return [str(item.data), item.key == 'a\\udc80', str(item.path) == '/a\\udc80', item.line]"
    )
    item = Item(3, "a\udc80", 2**70, Path("/a\udc80"), "line")

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            found = bench.output(await executor.run(bench.attempt(item=item), bench.channel))
            assert found == [str(2**70), True, True, "line"]

    bench.run(scenario())


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the worker died: signal 11 (SIGSEGV)"),
        ("os._exit(3)", "the worker died: exit 3"),
        # A forked child holds the worker's end of the connection.
        ("libc.fork() and os._exit(3) or time.sleep(600)", "the worker died: exit 3"),
    ],
)
def test_a_worker_that_dies_takes_one_attempt_and_is_replaced(bench: Bench, end: str, message: str) -> None:
    source = f"""
        import ctypes, os, signal, time
        libc = ctypes.CDLL(None)
        def agent(item):
            if item.data == "die":
                {end}
            return os.getpid()
    """

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            first = bench.output(await executor.run(bench.attempt(), bench.channel))
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == first
            outcome = await executor.run(bench.attempt("die"), bench.channel)
            assert outcome.kind == "lost"
            assert bench.cause(outcome) == message
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) != first

    bench.run(scenario())


def test_a_worker_has_the_jobs_folder_and_environment(bench: Bench) -> None:
    (bench.folder / "json.py").write_text("raise RuntimeError('not the one')")
    bench.environ["FROM_ENV_FILE"] = "1"
    source = (
        "import os\ndef agent(item): return [os.getcwd(), os.environ['FROM_ENV_FILE'], os.getsid(0) == os.getpid()]"
    )

    async def scenario() -> None:
        async with bench.executor(source, "process") as executor:
            found = bench.output(await executor.run(bench.attempt(), bench.channel))
            assert found == [str(bench.folder.resolve()), "1", True]

    bench.run(scenario())


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

    bench.run(scenario())


def test_at_most_concurrency_workers_are_started_and_they_are_used_again(bench: Bench) -> None:
    source = "import os, time\ndef agent(item):\n    time.sleep(0.01)\n    return os.getpid()"

    async def scenario() -> None:
        async with bench.executor(source, "process", concurrency=2) as executor:
            attempts = [bench.attempt(log_path=bench.folder / f"{n}.log") for n in range(8)]
            outcomes = await asyncio.gather(*(executor.run(a, bench.channel) for a in attempts))
            pids = {bench.output(outcome) for outcome in outcomes}
            assert len(pids) == 2
        assert [read_process(pid) for pid in pids] == [None, None]
        assert os.getpid() not in pids

    bench.run(scenario())


def test_the_guardian_is_told_of_each_session_until_it_has_ended(bench: Bench) -> None:
    told: list[str] = []

    class Listener(Guardian):
        def began(self, pid: int) -> None:
            told.append(f"+{pid}")

        def ended(self, pid: int) -> None:
            assert os.getsid(pid) == pid  # not reaped yet: the number is still its own
            told.append(f"-{pid}")

    bench.guardian = Listener(None, "not started")

    async def scenario() -> None:
        async with bench.executor("import os\ndef agent(item): return os.getpid()", "process") as executor:
            worker = bench.output(await executor.run(bench.attempt(), bench.channel))
        async with bench.programs("sh", "-c", "echo $$") as executor:
            program = bench.output(await executor.run(bench.attempt(), bench.channel))
        assert told == [f"+{worker}", f"-{worker}", f"+{program}", f"-{program}"]

    bench.run(scenario())

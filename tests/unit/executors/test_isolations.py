"""Python agents: on the loop, in threads, in worker processes. Each behaviour with a real agent file."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from agentrun.errors import AgentError

if TYPE_CHECKING:
    from unit.executors.conftest import Bench

ISOLATIONS = ["loop", "thread", "process"]


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
            attempts = [bench.attempt({"n": 2**53}, number=3) for _ in range(2)]
            first, second = [bench.output(await executor.run(attempt, bench.channel)) for attempt in attempts]
            assert first == second
            assert first[:4] == ["k", 2**53, "acme", 3] and len(first[4]) == 36
            assert bench.messages == [{"type": "progress", "text": "half way"}] * 2
            assert bench.log() == "noted 1\n"  # emptied in between

    bench.run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_is_printed_or_logged_goes_to_the_items_log_only(
    bench: Bench, isolation: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = """
        import logging, sys
        logger = logging.getLogger("executors_agent")
        logger.handlers = [logging.StreamHandler()]
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
            bench.output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "printed\nnoted\nto stderr \\ud800\nbytes\nlogged\n"
            print("ours")

    bench.run(scenario())
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
            bench.output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "from a thread\n"

    bench.run(scenario())
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
        assert bench.cause(outcomes["value"]) == "ValueError: odd"
        failure = outcomes["value"].failure
        assert failure is not None and "executors_agent.py" in failure.traceback
        assert "calls.py" not in failure.traceback
        assert bench.cause(outcomes["skip"]) == "Skip: empty"
        assert "the agent called sys.exit(2)" in bench.cause(outcomes["exit"])
        assert bench.cause(outcomes["set"]) == "output.a[1] is a set, which JSON cannot hold"

    bench.run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_big_items_and_outputs_pass(bench: Bench, isolation: str) -> None:
    async def scenario() -> None:
        async with bench.executor("def agent(item): return item.data * 2", isolation) as executor:
            size = 8 * 1024 * 1024
            assert len(bench.output(await executor.run(bench.attempt("x" * size), bench.channel))) == 2 * size
            assert bench.output(await executor.run(bench.attempt([1]), bench.channel)) == [1, 1]

    bench.run(scenario())


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

    bench.run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_class_is_made_once_and_closed_at_the_end(bench: Bench, isolation: str) -> None:
    source = """
        from pathlib import Path
        class Agent:
            def __init__(self):
                self.count = 0
            def __call__(self, item, ctx):
                self.count += 1
                return self.count
            def close(self):
                Path("closed").write_text(str(self.count))
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            found = [bench.output(await executor.run(bench.attempt(), bench.channel)) for _ in range(3)]
            assert found == [1, 2, 3]
            await asyncio.sleep(0)
        assert (bench.folder / "closed").read_text() == "3"

    bench.run(scenario())


@pytest.mark.parametrize("isolation", ["loop", "thread"])
def test_a_class_that_cannot_be_closed_does_not_fail_the_run(
    bench: Bench, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = "class Agent:\n    def __call__(self, item): ...\n    def close(self): raise OSError('no')"

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            bench.output(await executor.run(bench.attempt(), bench.channel))

    bench.run(scenario())
    assert "could not be closed: OSError: no" in caplog.text


def test_logging_handlers_that_were_made_before_are_captured_too(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    logger, handler = logging.getLogger("made.before"), logging.StreamHandler()
    logger.addHandler(handler)
    stream = handler.stream

    async def scenario() -> None:
        source = "import logging\ndef agent(item): logging.getLogger('made.before').warning('said')"
        async with bench.executor(source, "thread") as executor:
            bench.output(await executor.run(bench.attempt(), bench.channel))
            assert bench.log() == "said\n"

    bench.run(scenario())
    assert handler.stream is stream
    logger.removeHandler(handler)
    assert capfd.readouterr().err == ""


def test_a_class_that_cannot_be_made_is_told_before_any_item_on_the_loop(bench: Bench) -> None:
    source = "class Agent:\n    def __init__(self): raise OSError('no key')\n    def __call__(self, item): ..."

    async def scenario() -> None:
        with pytest.raises(AgentError, match="OSError: no key") as caught:
            async with bench.executor(source, "loop"):
                pass
        assert "executors_agent.py" in caught.value.traceback

    bench.run(scenario())


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_failure_names_the_line_of_the_agents_own_file(bench: Bench, isolation: str) -> None:
    source = """
        import json

        def agent(item, ctx):
            return parse("{")

        def parse(text):
            return json.loads(text)
    """

    async def scenario() -> None:
        async with bench.executor(source, isolation) as executor:
            outcome = await executor.run(bench.attempt({"n": 1}), bench.channel)
        assert outcome.failure is not None and (raised := outcome.failure.raised) is not None
        assert raised.file.endswith(".py") and (raised.function, raised.code) == ("parse", "return json.loads(text)")

    bench.run(scenario())

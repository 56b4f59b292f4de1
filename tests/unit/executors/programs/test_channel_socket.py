"""Programs and the channel: the launch's socket, and what reaches an attempt by it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.agents.attempt import Channel, Outcome
from agentrun.agents.messages import (
    Answer,
    Answered,
    Ask,
    KnownStep,
    Message,
    Park,
    Received,
    Refused,
    Reply,
    StepGet,
    StepPut,
)
from agentrun.errors import DiskError
from agentrun.executors.choice import open_executor
from agentrun.executors.port import Executor
from agentrun.executors.programs.channel_socket import ChannelSocket
from agentrun.item import Item
from agentrun.values.names import work_name
from agentrun.values.templates import escape

if TYPE_CHECKING:
    from unit.executors.conftest import Bench

AGENTRUN = str(Path(sys.executable).parent / "agentrun")


class Runner:
    """The runner's side of one item, in memory."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, int], str] = {}
        self.answer: dict[str, Any] | None = None
        self.messages: list[dict[str, Any]] = []
        self._asked: dict[str, int] = {}

    async def channel(self, message: Message) -> Reply:
        form = message.as_json()
        assert form.pop("id") and form.pop("no")
        self.messages.append(form)
        await asyncio.sleep(0)
        match message:
            case StepGet("broken"):
                raise DiskError("the disk is full; make room")
            case StepGet(name):
                n = self._asked[name] = self._asked.get(name, -1) + 1
                found = self.steps.get((name, n))
                return KnownStep(n, found is not None, found)
            case StepPut(name, n, output):
                self.steps[name, n] = output
            case Ask():
                return Park() if self.answer is None else Answered(Answer(**self.answer))
        return Received()

    def next_attempt(self) -> None:
        self._asked.clear()


@pytest.fixture
def runner() -> Runner:
    return Runner()


@asynccontextmanager
async def opened(
    bench: Bench, *command: str, folder: Path | None = None, environ: dict[str, str] | None = None, **changes: Any
) -> AsyncIterator[Executor]:
    job = bench.job(command=command, **changes)
    executor = open_executor(job, load_agent(job), guardian=None, environ=environ or {}, folder=folder)
    try:
        await executor.start()
        yield executor
    finally:
        await executor.close()


def attempted(bench: Bench, script: str, channel: Channel, *, job: dict[str, Any] | None = None, **at: Any) -> Outcome:
    """The outcome of a shell script in which `agentrun` is the real command."""
    outcomes: list[Outcome] = []
    script = f'agentrun() {{ {shlex.quote(AGENTRUN)} "$@"; }}\n{dedent(script)}'

    async def scenario() -> None:
        async with opened(bench, "sh", "-c", escape(script), folder=bench.folder, **(job or {})) as executor:
            outcomes.append(await executor.run(bench.attempt(**at), channel))

    bench.run(scenario())
    return outcomes[0]


CLIENT = """
import json, os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["AGENTRUN_CHANNEL"])
f = s.makefile("rwb")
def say(line):
    f.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\\n")
    f.flush()
    return json.loads(f.readline() or b'"hung up"')
me = {"attempt": os.environ["AGENTRUN_ATTEMPT_ID"]}
"""


def client(bench: Bench, code: str, channel: Channel, **at: Any) -> Outcome:
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with opened(bench, sys.executable, "-c", escape(CLIENT + dedent(code)), folder=bench.folder) as executor:
            outcomes.append(await executor.run(bench.attempt(**at), channel))

    bench.run(scenario())
    return outcomes[0]


def test_a_step_is_run_once_and_then_remembered(bench: Bench, runner: Runner) -> None:
    script = "agentrun step count -- sh -c 'echo ran >>ran.log; echo 42'; agentrun step other -- echo done"
    assert bench.output(attempted(bench, script, runner.channel)) == "42\ndone"
    assert runner.steps == {("count", 0): '"42\\n"', ("other", 0): '"done\\n"'}
    runner.next_attempt()
    assert bench.output(attempted(bench, script, runner.channel)) == "42\ndone"
    assert (bench.folder / "ran.log").read_text() == "ran\n"


def test_a_step_is_printed_only_when_it_is_on_disk(bench: Bench, runner: Runner) -> None:
    printed = bench.folder / "printed"
    seen: list[str] = []

    async def slow(message: Message) -> Reply:
        if isinstance(message, StepPut):
            await asyncio.sleep(0.1)
            seen.append(printed.read_text())
        return await runner.channel(message)

    assert attempted(bench, "agentrun step a -- echo 1 >printed", slow).kind == "done"
    assert (seen, printed.read_text()) == ([""], "1\n")


def test_a_program_of_a_run_inside_of_a_run_reaches_its_own(
    bench: Bench, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTRUN_ATTEMPT_ID", "0123456789abcdef")
    monkeypatch.setenv("AGENTRUN_CHANNEL", "/of/the/outer/run")
    assert bench.output(attempted(bench, "agentrun step a -- echo 1", runner.channel)) == "1"


def test_the_same_name_twice_is_two_steps(bench: Bench, runner: Runner) -> None:
    script = "for word in one two; do agentrun step say -- echo $word; done"
    assert bench.output(attempted(bench, script, runner.channel)) == "one\ntwo"
    assert runner.steps == {("say", 0): '"one\\n"', ("say", 1): '"two\\n"'}


def test_steps_can_be_nested(bench: Bench, runner: Runner) -> None:
    script = f"agentrun step outer -- {shlex.quote(AGENTRUN)} step inner -- echo deep"
    assert bench.output(attempted(bench, script, runner.channel)) == "deep"
    assert set(runner.steps) == {("outer", 0), ("inner", 0)}


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [("sh -c 'echo half; exit 3'", 3, "half"), ("sh -c 'kill -9 $$'", 137, ""), ("no-such-program", 127, "")],
)
def test_a_command_that_fails_is_not_remembered_and_its_code_is_passed_on(
    bench: Bench, runner: Runner, command: str, code: int, printed: str
) -> None:
    outcome = attempted(bench, f"agentrun step a -- {command}; echo $?", runner.channel)
    assert bench.output(outcome).split() == [*printed.split(), str(code)]
    assert runner.steps == {}


def test_what_a_step_prints_comes_back_byte_by_byte(bench: Bench, runner: Runner) -> None:
    made = "agentrun step bytes -- printf 'a\\000\\377\\n\\n' >one; agentrun step text -- printf 'ü\\001\\n' >two"
    for _ in range(2):
        assert attempted(bench, made, runner.channel).kind == "done"
        assert (bench.folder / "one").read_bytes() == b"a\0\xff\n\n"
        assert (bench.folder / "two").read_bytes() == "ü\x01\n".encode()
        runner.next_attempt()
    assert json.loads(runner.steps["bytes", 0]) == {"base64": "YQD/Cgo="}
    assert sum(message["type"] == "step_put" for message in runner.messages) == 2


def test_a_step_of_sixteen_mebibytes_of_control_characters_comes_back(bench: Bench, runner: Runner) -> None:
    script = r"agentrun step big -- sh -c 'head -c 16777216 /dev/zero | tr \\0 \\001' | cksum"
    first = bench.output(attempted(bench, script, runner.channel))
    runner.next_attempt()
    assert bench.output(attempted(bench, script, runner.channel)) == first
    assert first.endswith(" 16777216")


def test_a_step_that_prints_too_much_fails_for_good(bench: Bench, runner: Runner) -> None:
    outcome = attempted(bench, "agentrun step big -- head -c 16777217 /dev/zero", runner.channel)
    assert outcome.failure is not None and outcome.failure.exit_code == 65
    assert "over 16 MiB" in outcome.failure.message
    assert runner.steps == {}


def test_a_step_that_an_agent_in_python_made_is_printed_as_json(bench: Bench, runner: Runner) -> None:
    runner.steps["a", 0] = '{"n": [1, 18446744073709551616]}'
    assert bench.output(attempted(bench, "agentrun step a -- false", runner.channel)) == runner.steps["a", 0]


@pytest.mark.parametrize(("yes", "code"), [(True, 0), (False, 1)])
def test_an_answer_is_printed_as_json_and_its_yes_is_the_exit_code(
    bench: Bench, runner: Runner, yes: bool, code: int
) -> None:
    runner.answer = {"yes": yes, "text": "ü", "by": "ann", "at": "2026-01-01T00:00:00Z", "details": {"draft": "b"}}
    (bench.folder / "d.json").write_text('{"n": 1}')
    script = "agentrun ask 'Send it?' --detail draft='a=b' --details @d.json; echo $?"
    printed, said = bench.output(attempted(bench, script, runner.channel)).splitlines()
    assert (json.loads(printed), int(said)) == (runner.answer, code)
    assert '"text":"ü"' in printed
    assert runner.messages == [{"type": "ask", "question": "Send it?", "details": {"n": 1, "draft": "a=b"}}]


def test_a_program_that_asks_is_ended_and_its_item_waits(bench: Bench, runner: Runner) -> None:
    outcome = attempted(bench, "agentrun ask 'Send it?' || echo no; echo went on >went", runner.channel)
    assert outcome == Outcome("waiting")
    assert not (bench.folder / "went").exists()


def test_usage_is_reported(bench: Bench, runner: Runner) -> None:
    response = {"model": "m-2", "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
    (bench.folder / "response.json").write_text(json.dumps(response))
    script = """
        agentrun usage --model m-1 --input-tokens 12 --output-tokens 3 --cost 0.5 &&
        agentrun usage --response - --provider openai <response.json
    """
    assert attempted(bench, script, runner.channel).kind == "done"
    first, second = runner.messages
    assert (first["type"], first["model"], first["input_tokens"], first["output_tokens"]) == ("usage", "m-1", 12, 3)
    assert first["cost"] == 0.5
    assert (second["model"], second["input_tokens"], second["output_tokens"]) == ("m-2", 7, 3)
    assert second["provider"] == "openai"


def test_log_writes_to_the_items_log(bench: Bench, runner: Runner) -> None:
    assert attempted(bench, "agentrun log now -n 3; agentrun log -- --help", runner.channel).kind == "done"
    assert [message["text"] for message in runner.messages] == ["now -n 3", "--help"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("step a", "after `--`"),
        ("step -- true", "one name"),
        ("step a b -- true", "one name"),
        ("step a --", "no command"),
        ("ask", "required: QUESTION"),
        ("ask a --detail b", "NAME=VALUE"),
        ("ask a --details [1]", "JSON object"),
        ("ask a --details {", "not JSON"),
        ("ask a --details @nowhere", "nowhere cannot be read"),
        ("usage", "--cost 0"),
        ("usage --cost many", "US dollars"),
        ("usage --input-tokens -1", "--input-tokens"),
        ("usage --token 3", "--token"),
        ("log", "WORDS"),
    ],
)
def test_wrong_words_are_told_and_exit_2(bench: Bench, runner: Runner, words: str, says: str) -> None:
    outcome = attempted(bench, f"agentrun {words}", runner.channel)
    assert outcome.failure is not None and outcome.failure.exit_code == 2
    assert says in outcome.failure.message
    assert runner.messages == []


def test_what_the_runner_refuses_is_told_and_fails_for_good(bench: Bench) -> None:
    async def refuse(message: Message) -> Reply:
        return Refused("the item has too many steps")

    outcome = attempted(bench, "agentrun step a -- true", refuse)
    assert outcome.failure is not None and outcome.failure.exit_code == 65
    assert outcome.failure.message == "exit 65: agentrun step: the item has too many steps"


def test_an_error_of_the_runner_is_raised_and_ends_the_program(bench: Bench, runner: Runner) -> None:
    with pytest.raises(DiskError):
        client(bench, "say(me); say({'type': 'step_get', 'name': 'broken'}); open('went', 'w')", runner.channel)
    assert not (bench.folder / "went").exists()


def test_messages_are_answered_one_by_one(bench: Bench, runner: Runner) -> None:
    code = """
        answers = [say(me), say({"type": "step_get", "name": "a"}), say({"type": "bad"}), say(b"nonsense"), say([1])]
        print(json.dumps(answers), end="")
    """
    met, step, bad, *odd = json.loads(bench.output(client(bench, code, runner.channel)))
    assert (met, step) == ({}, {"n": 0, "found": False})
    assert bad == {"error": "this runner does not know messages of type 'bad'"}
    assert all("must be a JSON object" in answer["error"] for answer in odd)


def test_lines_sent_at_once_are_answered_in_order(bench: Bench, runner: Runner) -> None:
    code = """
        lines = [me] + [{"type": "step_get", "name": "a"}] * 500
        s.sendall(b"".join(json.dumps(line).encode() + b"\\n" for line in lines))
        s.shutdown(socket.SHUT_WR)
        print([json.loads(line).get("n") for line in f] == [None, *range(500)], end="")
    """
    assert bench.output(client(bench, code, runner.channel)) == "True"


@pytest.mark.parametrize("first", ['{"attempt": "0123456789abcdef"}', '{"type": "log", "text": "a"}', "nonsense"])
def test_who_does_not_name_an_attempt_in_flight_is_refused(bench: Bench, runner: Runner, first: str) -> None:
    code = f"print(json.dumps([say({first.encode()!r}), json.loads(f.readline() or b'0')]), end='')"
    refused, then = json.loads(bench.output(client(bench, code, runner.channel)))
    assert "attempt" in refused["error"] and then == 0
    assert runner.messages == []


def test_an_attempt_that_is_over_is_refused(bench: Bench, runner: Runner) -> None:
    """Also what it left behind, over a connection that it has."""

    async def scenario() -> None:
        code = CLIENT + dedent("""
            say(me)
            if os.fork():
                os._exit(0)
            os.setsid()
            while not os.path.exists("over"):
                pass
            answer = say({"type": "log", "text": "late"})
            with open("answer.part", "w") as file:
                json.dump(answer, file)
            os.rename("answer.part", "answer")
        """)
        async with opened(bench, sys.executable, "-c", escape(code), folder=bench.folder) as executor:
            outcome = await executor.run(bench.attempt(), runner.channel)
            assert outcome.kind == "done"
            (bench.folder / "over").touch()
            await bench.eventually((bench.folder / "answer").exists, "an answer")

    bench.run(scenario())
    assert json.loads((bench.folder / "answer").read_text()) == {"error": "this attempt is over"}
    assert runner.messages == []


def test_what_is_under_way_when_the_program_ends_is_waited_for(bench: Bench) -> None:
    told: list[str] = []

    async def slow(message: Message) -> Reply:
        told.append("begun")
        (bench.folder / "begun").touch()
        await asyncio.sleep(0.2)
        told.append("ended")
        return Received()

    script = "agentrun usage --cost 1 & while [ ! -e begun ]; do :; done; echo ok"
    assert bench.output(attempted(bench, script, slow)) == "ok"
    assert told == ["begun", "ended"]


@pytest.mark.parametrize("timeout", [0.3, None])
def test_a_timeout_and_a_cancellation_give_up_what_is_under_way(bench: Bench, timeout: float | None) -> None:
    cancelled: list[bool] = []
    reached = bench.folder / "reached"

    async def never(message: Message) -> Reply:
        reached.touch()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return Received()

    async def scenario() -> None:
        code = CLIENT + "say(me); say({'type': 'log', 'text': 'a'})"
        async with opened(bench, sys.executable, "-c", escape(code)) as executor:
            attempt = bench.attempt(timeout_seconds=None if timeout is None else 5.0)
            running = asyncio.ensure_future(executor.run(attempt, never))
            await bench.eventually(reached.exists, "a message")
            if timeout is None:
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            else:
                outcome = await running
                assert outcome.failure is not None and outcome.failure.origin == "timeout"

    bench.run(scenario())
    assert cancelled == [True]


def test_a_long_line_is_taken_and_a_longer_one_refused(bench: Bench, runner: Runner) -> None:
    code = """
        say(me)
        print(json.dumps([say({"type": "log", "text": "x" * (20 * 2**20)}), say(b"x" * (33 * 2**20))]), end="")
    """
    taken, refused = json.loads(bench.output(client(bench, code, runner.channel)))
    assert taken == {} and "over 32 MiB" in refused["error"]
    assert len(runner.messages[0]["text"]) == 20 * 2**20


def test_folders_are_there_before_the_program_and_named(bench: Bench, runner: Runner) -> None:
    script = (
        'echo a >"$AGENTRUN_ITEM_DIR/a"; echo b >"$AGENTRUN_OUT_DIR/b"; ls -ld "$0" "$1" | cut -c1-10; echo "$0" "$1"'
    )
    work = bench.folder / "work" / work_name("k", 0)
    for _ in range(2):  # the second finds them

        async def scenario() -> None:
            async with opened(bench, "sh", "-c", script, "{dir}", "{out}") as executor:
                outcome = await executor.run(bench.attempt(item=Item(0, "k", "a")), runner.channel)
                assert bench.output(outcome) == f"drwx------\ndrwx------\n{work}/dir {work}/out"
                assert outcome.made_files

        bench.run(scenario())
    assert (work / "dir" / "a").exists() and (work / "out" / "b").exists()
    assert stat.S_IMODE(work.stat().st_mode) == 0o700


def test_the_command_is_found_where_it_is_not_on_the_path(bench: Bench, runner: Runner) -> None:
    """And what is on the path comes first."""
    other = bench.folder / "bin"
    other.mkdir()
    seen: list[str] = []

    async def scenario() -> None:
        async with opened(bench, "sh", "-c", "agentrun step a -- echo ours", environ={"PATH": path}) as executor:
            seen.append(bench.output(await executor.run(bench.attempt(), runner.channel)))

    path = f"{other}:/usr/bin:/bin"
    bench.run(scenario())
    (other / "agentrun").write_text("#!/bin/sh\necho another\n")
    (other / "agentrun").chmod(0o755)
    bench.run(scenario())
    assert seen == ["ours", "another"]


@pytest.mark.parametrize(("script", "made"), [("true", False), ('touch "$0/a"', True), ('touch "$1/a"', True)])
def test_folders_that_are_empty_in_the_end_are_gone(bench: Bench, runner: Runner, script: str, made: bool) -> None:
    attempt = bench.attempt()

    async def scenario() -> None:
        async with opened(bench, "sh", "-c", script, "{dir}", "{out}") as executor:
            outcome = await executor.run(attempt, runner.channel)
            assert (outcome.kind, outcome.made_files) == ("done", made)

    bench.run(scenario())
    assert Path(attempt.work).exists() == made


@pytest.mark.parametrize("left", ["nothing", "a socket", "a file"])
def test_the_socket_is_in_the_jobs_folder_and_gone_afterwards(tmp_path: Path, left: str) -> None:
    path = tmp_path / "channel.sock"
    if left == "a file":
        path.touch()
    elif left == "a socket":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))

    async def scenario() -> None:
        listening = ChannelSocket(tmp_path)
        await listening.open()
        assert listening.path == str(path)
        assert stat.S_ISSOCK(path.stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o600
        await listening.close()

    asyncio.run(scenario())
    assert not path.exists()


def test_where_the_path_is_too_long_the_socket_is_in_a_temporary_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()

    async def scenario() -> str:
        listening = ChannelSocket(folder)
        await listening.open()
        home = Path(listening.path).parent
        assert home.parent == Path(tempfile.gettempdir()) and stat.S_IMODE(home.stat().st_mode) == 0o700
        await listening.close()
        return str(home)

    assert not os.path.exists(asyncio.run(scenario()))
    assert os.listdir(folder) == []


def test_a_connection_left_open_does_not_hold_up_the_end(bench: Bench, runner: Runner) -> None:
    async def scenario() -> None:
        listening = ChannelSocket(None)
        await listening.open()
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.setblocking(False)
            await asyncio.get_running_loop().sock_connect(waiting, listening.path)
            await asyncio.sleep(0)
            async with asyncio.timeout(120):
                await listening.close()
            # It was closed, not left open.
            with pytest.raises(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(waiting, 1)

    bench.run(scenario())


def test_a_script_whose_question_is_ended_never_goes_on(bench: Bench, runner: Runner) -> None:
    """It would take that for a no."""
    script = "if agentrun ask 'Send it?'; then echo yes >went; else echo no >went; fi; echo on >went"
    for _ in range(5):
        assert attempted(bench, script, runner.channel) == Outcome("waiting")
        assert not (bench.folder / "went").exists()

"""Programs that serve: one a slot, an item a line in, an outcome a line out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from agentrun.agents.agent import load_agent
from agentrun.agents.attempt import Outcome
from agentrun.agents.context import idempotency_key
from agentrun.agents.failure import judge
from agentrun.agents.messages import KnownStep, Message, Park, Received, Reply, StepGet, StepPut
from agentrun.errors import DiskError
from agentrun.executors.choice import open_executor
from agentrun.executors.port import Executor
from agentrun.executors.programs import serve as serving
from agentrun.item import Item
from agentrun.system.guardian import read_process
from agentrun.values.names import work_name
from agentrun.values.templates import escape

if TYPE_CHECKING:
    from unit.executors.conftest import Bench

SERVER = """
import json, os, sys, time

def hear():
    global current
    line = sys.stdin.readline()
    heard = json.loads(line) if line else None
    if heard and heard.get("type") == "item":
        current = heard["id"]
    return heard

def say(message):
    line = message if isinstance(message, str) else json.dumps({"id": current, **message})
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()

def ask(message):
    say(message)
    return hear()

def done(output):
    say({"type": "done", "output": output})
"""


@asynccontextmanager
async def serving_with(bench: Bench, code: str, **changes: Any) -> AsyncIterator[Executor]:
    """`code` is run for each item, which is `item`."""
    body = "\n".join("    " + line for line in dedent(code).strip().splitlines())
    source = f"{SERVER}\nwhile (item := hear()) is not None:\n{body}\nopen('closed', 'w')\n"
    (bench.folder / "server.py").write_text(source)
    async with opened(bench, sys.executable, "server.py", **changes) as executor:
        yield executor


@asynccontextmanager
async def opened(bench: Bench, *command: str, **changes: Any) -> AsyncIterator[Executor]:
    job = bench.job(command=command, serve=True, **changes)
    executor = open_executor(job, load_agent(job), guardian=bench.guardian, environ=bench.environ)
    try:
        await executor.start()
        yield executor
    finally:
        await executor.close()


def served(bench: Bench, code: str, *items: Any, job: dict[str, Any] | None = None, **at: Any) -> list[Outcome]:
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with serving_with(bench, code, **(job or {})) as executor:
            for index, data in enumerate(items or [None]):
                attempt = bench.attempt(item=Item(index, f"k{index}", data), **at)
                outcomes.append(await executor.run(attempt, bench.channel))

    bench.run(scenario())
    return outcomes


def message_of(outcome: Outcome) -> str:
    assert outcome.failure is not None
    return outcome.failure.message


def test_one_program_is_given_one_item_after_the_other(bench: Bench) -> None:
    code = "done([item['data'], os.getpid()])"
    (one, pid), (two, same) = map(bench.output, served(bench, code, {"n": 2**64 - 1}, "ü\n"))
    assert (one, two, pid) == ({"n": 2**64 - 1}, "ü\n", same)


def test_what_other_languages_take_for_the_end_of_a_line_is_not_in_one(bench: Bench) -> None:
    code = "raw = sys.stdin.buffer.readline().decode()"
    code += "; item = json.loads(raw); current = item['id']"
    (bench.folder / "odd.py").write_text(f"{SERVER}\n{code}\ndone([len(raw.splitlines()), item['data']])")

    async def scenario() -> None:
        async with opened(bench, sys.executable, "odd.py") as executor:
            odd = "a\u2028b\u2029c\x85d\r\x0be"
            outcome = await executor.run(bench.attempt(item=Item(0, "k", odd)), bench.channel)
            assert bench.output(outcome) == [1, odd]

    bench.run(scenario())


def test_big_integers_are_refused_with_their_place(bench: Bench) -> None:
    (outcome,) = served(bench, "done(item['data'])", {"n": 2**70})
    assert outcome.failure is not None and outcome.failure.origin == "output"
    assert "output.n" in message_of(outcome)


def test_an_item_is_told_with_all_that_a_program_needs(bench: Bench) -> None:
    work = bench.folder / "work" / work_name("k0", 0)
    (outcome,) = served(bench, "done([item, os.path.exists(os.path.dirname(item['dir']))])", "a")
    item, is_made = bench.output(outcome)
    assert re.fullmatch("[0-9a-f]{16}", item.pop("id"))
    assert item == {
        "type": "item",
        "index": 0,
        "key": "k0",
        "data": "a",
        "attempt": 1,
        "run_id": "r",
        "idempotency_key": idempotency_key("s", "k0", 0),
        "params": {"customer": "acme"},
        "dir": f"{work}/dir",
        "out": f"{work}/out",
    }
    assert not is_made
    assert not outcome.made_files and not work.exists()


def test_files_that_it_made_are_told_of(bench: Bench) -> None:
    work = bench.folder / "work" / work_name("k0", 0)
    (outcome,) = served(bench, "os.makedirs(item['out']); open(item['out'] + '/a', 'w'); done(1)", "a")
    assert outcome.made_files and (work / "out" / "a").exists()


@pytest.mark.parametrize(
    ("item", "expected"),
    [(Item(0, "a", None, Path("/x/a")), {"path": "/x/a"}), (Item(0, "a", None, None, "line"), {"text": "line"})],
)
def test_files_come_as_a_path_and_lines_as_text(bench: Bench, item: Item, expected: dict[str, str]) -> None:
    async def scenario() -> None:
        async with serving_with(bench, "done({n: item[n] for n in ('path', 'text') if n in item})") as executor:
            assert bench.output(await executor.run(bench.attempt(item=item), bench.channel)) == expected

    bench.run(scenario())


def test_the_carry_is_told_where_the_job_has_one(bench: Bench) -> None:
    code = "ask({'type': 'carry', 'value': item['carry'] + 1}); done(None)"
    served(bench, code, "a", job={"carry": True}, carry=4)
    assert bench.messages == [{"type": "carry", "value": 5}]


@pytest.mark.parametrize(
    ("message", "kind", "verdict", "says"),
    [
        ({"type": "failed", "message": "why", "retry": True}, "failed", "transient", "why"),
        ({"type": "failed", "message": "why"}, "failed", "transient", "why"),
        ({"type": "failed", "message": "why", "retry": False}, "failed", "item", "why"),
        ({"type": "failed"}, "failed", "transient", "it gave no reason"),
        ({"type": "skipped", "reason": "empty"}, "skipped", "skip", "empty"),
        ({"type": "stop", "reason": "no key"}, "failed", "everyone", "no key"),
    ],
)
def test_how_an_item_can_end(bench: Bench, message: dict[str, Any], kind: str, verdict: str, says: str) -> None:
    code = f"say({message!r}) if item['index'] == 0 else done(1)"
    first, second = served(bench, code, "a", "b")
    assert first.failure is not None
    assert (first.kind, judge(first.failure).verdict, first.failure.message) == (kind, verdict, says)
    assert bench.output(second) == 1


def test_a_failure_may_say_when_to_try_again_and_a_stop_when_to_resume(bench: Bench) -> None:
    (failed,) = served(bench, "say({'type': 'failed', 'message': 'slow down', 'after': 2.5})")
    assert failed.failure is not None and failed.failure.retry_after_seconds == 2.5
    (stopped,) = served(bench, "say({'type': 'stop', 'reason': 'night', 'resume_at': '2026-01-02T03:04:05Z'})")
    assert stopped.failure is not None and judge(stopped.failure).passes_by_itself


def test_steps_are_json_as_it_is(bench: Bench) -> None:
    steps: dict[tuple[str, int], str] = {}

    async def channel(message: Message) -> Reply:
        match message:
            case StepPut(name, n, output):
                steps[name, n] = output
            case StepGet(name):
                found = steps.get((name, 0))
                return KnownStep(0, found is not None, found)
        return Received()

    code = """
        found = ask({"type": "step_get", "name": "a"})
        if not found["found"]:
            assert ask({"type": "step_put", "name": "a", "value": {"b": [1, None, "ü"]}}) == {"id": item["id"]}
        refused = ask({"type": "step_put", "name": "b", "value": 10**30})
        assert found.pop("id") == item["id"]
        done([found, refused["error"]])
    """

    async def scenario() -> None:
        async with serving_with(bench, code) as executor:
            first, refused = bench.output(await executor.run(bench.attempt(), channel))
            second, _ = bench.output(await executor.run(bench.attempt(number=2), channel))
        assert first == {"n": 0, "found": False} and "beyond 64 bits" in refused
        assert second == {"n": 0, "found": True, "value": {"b": [1, None, "ü"]}}

    bench.run(scenario())
    assert {name: json.loads(text) for name, text in steps.items()} == {("a", 0): {"b": [1, None, "ü"]}}


def test_a_parked_item_waits_and_its_program_goes_on_with_the_next(bench: Bench) -> None:
    async def park(message: Message) -> Reply:
        return Park()

    code = """
        if item["index"] == 0:
            say({"type": "waiting"} if ask({"type": "ask", "question": "Well?", "details": {}}).get("park") else {})
        else:
            done(os.getpid())
    """

    async def scenario() -> None:
        async with serving_with(bench, code) as executor:
            pid = bench.output(await executor.run(bench.attempt(item=Item(1, "k", None)), park))
            assert await executor.run(bench.attempt(), park) == Outcome("waiting")
            assert bench.output(await executor.run(bench.attempt(item=Item(1, "k", None)), park)) == pid

    bench.run(scenario())


@pytest.mark.parametrize("then", ["done('all the same')", "time.sleep(60)", "sys.exit(0)", "say('nonsense')"])
def test_a_program_that_does_not_let_go_of_a_parked_item_is_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(serving, "PARK_SECONDS", 0.2)

    async def park(message: Message) -> Reply:
        return Park()

    async def scenario() -> None:
        code = f"""
            if item["index"] == 0:
                ask({{"type": "ask", "question": "Well?", "details": {{}}}})
                {then}
            else:
                done(os.getpid())
        """
        async with serving_with(bench, code) as executor:
            pid = bench.output(await executor.run(bench.attempt(item=Item(1, "k", None)), park))
            assert await executor.run(bench.attempt(), park) == Outcome("waiting")
            assert read_process(pid) is None
            assert bench.output(await executor.run(bench.attempt(item=Item(1, "k", None)), park)) != pid

    bench.run(scenario())


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("Loading the model…", "not JSON"),
        ("[1]", 'not an object with a "type"'),
        ('{"output": 1}', 'not an object with a "type"'),
        ('{"type": "done", "id": "ID", "output": NaN}', "not JSON"),
        ('{"type": "done", "id": "ID", "ouput": 1}', 'has no "output"'),
        ('{"type": "waiting", "id": "ID"}', "without having read"),
    ],
)
def test_a_line_that_was_not_agreed_on_fails_the_attempt_and_ends_the_program(
    bench: Bench, written: str, says: str
) -> None:
    written = written.replace("ID", "%s")
    code = f"done(1) if os.path.exists('a') else (open('a', 'w').close(), say({written!r}.replace('%s', item['id'])))"
    first, second = served(bench, code, "a", "b")
    assert first.kind == "failed" and says in message_of(first)
    assert first.failure is not None and judge(first.failure).verdict == "transient"
    assert bench.output(second) == 1


def test_a_message_that_the_runner_does_not_know_is_answered(bench: Bench) -> None:
    async def scenario() -> None:
        async with serving_with(bench, "done(ask({'type': 'sing'}))") as executor:
            reply = bench.output(await executor.run(bench.attempt(), bench.channel))
            assert reply["error"] == "this runner does not know messages of type 'sing'"
            assert bench.messages == []

    bench.run(scenario())


def test_blank_lines_and_parts_of_lines_are_no_matter(bench: Bench) -> None:
    code = """
        sys.stdout.write("\\n \\n" + '{"type": "do'); sys.stdout.flush()
        time.sleep(0.05)
        sys.stdout.write('ne", "output": 1, "id": "' + item["id"] + '"}\\n'); sys.stdout.flush()
    """
    assert [bench.output(outcome) for outcome in served(bench, code, "a", "b")] == [1, 1]


def test_what_was_written_after_an_outcome_is_never_the_next_items(bench: Bench) -> None:
    code = """
        lines = [{"type": "done", "id": item["id"], "output": output} for output in (item["index"], -1)]
        say("\\n".join(map(json.dumps, lines)))
    """
    assert [bench.output(outcome) for outcome in served(bench, code, *"abc")] == [0, 1, 2]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"type": "done", "id": "0123456789abcdef", "output": -1}, "the id of another attempt"),
        ({"type": "progress", "id": "0123456789abcdef", "text": "half way"}, "the id of another attempt"),
        ({"type": "done", "id": None, "output": -1}, "the id of another attempt"),
        ({"type": "done", "no": 2, "output": -1}, "line 1 has the number 2"),
    ],
)
def test_a_line_of_another_attempt_or_out_of_turn_is_never_taken_and_ends_the_program(
    bench: Bench, written: dict[str, Any], says: str
) -> None:
    code = f"""
        if item["index"] == 0:
            open("pid", "w").write(str(os.getpid()))
            say({written!r})
            time.sleep(60)
        done(1)
    """
    lost, done = served(bench, code, "a", "b")
    assert lost.kind == "lost" and says in message_of(lost)
    assert read_process(int((bench.folder / "pid").read_text())) is None
    assert bench.output(done) == 1 and bench.messages == []


@pytest.mark.parametrize("written", [{"type": "done", "output": 1}, {"type": "progress", "text": "half way"}])
def test_a_program_that_does_not_repeat_the_id_stops_the_run_and_says_what_to_write(
    bench: Bench, written: dict[str, Any]
) -> None:
    (outcome,) = served(bench, f"say(json.dumps({written!r}))", "a")
    assert outcome.failure is not None and judge(outcome.failure).verdict == "everyone"
    assert not judge(outcome.failure).passes_by_itself
    assert '"id": "<the item\'s id>"' in message_of(outcome) and bench.messages == []


def test_replies_repeat_the_id_and_the_number_if_there_is_one(bench: Bench) -> None:
    code = """
        replies = [ask({"type": "progress", "text": "", **more}) for more in ({"no": 1}, {}, {"no": 3})]
        say({"type": "done", "no": 4, "output": [item["id"], replies]})
    """
    (outcome,) = served(bench, code, "a")
    attempt_id, replies = bench.output(outcome)
    assert replies == [{"id": attempt_id, "no": 1}, {"id": attempt_id}, {"id": attempt_id, "no": 3}]


def test_a_program_that_dies_loses_its_attempt_and_the_next_starts_another(bench: Bench) -> None:
    code = """
        if item["index"] == 0:
            print("no memory", file=sys.stderr)
            os._exit(3)
        done(1)
    """
    lost, done = served(bench, code, "a", "b")
    assert (lost.kind, message_of(lost)) == (
        "lost",
        "the program exited before it finished the item: exit 3: no memory",
    )
    assert bench.output(done) == 1


def test_a_program_that_exits_between_items_is_started_again(bench: Bench) -> None:
    first, second = served(bench, "done(os.getpid()); sys.exit(0)", "a", "b")
    if second.kind == "lost":  # it was given the item while it exited
        assert "exit 0" in message_of(second)
    else:
        assert bench.output(first) != bench.output(second)


@pytest.mark.parametrize("command", [["./server"], ["sh", "-c", "exit 127"]])
def test_a_program_that_cannot_be_started_is_everyones_matter(bench: Bench, command: list[str]) -> None:
    (bench.folder / "server").write_text("#!/no/such/interpreter\n")
    (bench.folder / "server").chmod(0o755)

    async def scenario() -> None:
        async with opened(bench, *command) as executor:
            outcome = await executor.run(bench.attempt(), bench.channel)
            assert outcome.failure is not None and judge(outcome.failure).verdict == "everyone"

    bench.run(scenario())


def test_a_timeout_ends_the_program_with_its_tree(bench: Bench) -> None:
    code = """
        if item["index"] == 0:
            pid = os.spawnlp(os.P_NOWAIT, "setsid", "setsid", "sleep", "60")
            open("pids", "w").write(f"{os.getpid()} {pid}")
            time.sleep(60)
        done(1)
    """
    timed_out, done = served(bench, code, "a", "b", timeout_seconds=3.0)
    assert timed_out.failure is not None and timed_out.failure.origin == "timeout"
    assert [read_process(int(pid)) for pid in (bench.folder / "pids").read_text().split()] == [None, None]
    assert bench.output(done) == 1


def test_a_cancelled_attempt_ends_the_program(bench: Bench) -> None:
    async def scenario() -> None:
        async with serving_with(bench, "open('pid', 'w').write(str(os.getpid())); time.sleep(60)") as executor:
            running = asyncio.ensure_future(executor.run(bench.attempt(), bench.channel))
            pid = bench.folder / "pid"
            await bench.eventually(lambda: pid.exists() and bool(pid.read_text()), "the program at work")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert read_process(int(pid.read_text())) is None

    bench.run(scenario())


def test_an_error_of_the_runner_is_raised_and_ends_the_program(bench: Bench) -> None:
    async def broken(message: Message) -> Reply:
        raise DiskError("the disk is full; make room")

    async def scenario() -> None:
        async with serving_with(bench, "ask({'type': 'log', 'text': str(os.getpid())})") as executor:
            with pytest.raises(DiskError):
                await executor.run(bench.attempt(), broken)

    bench.run(scenario())


def test_slots_have_programs_of_their_own(bench: Bench) -> None:
    code = """
        open(f"at-{item['key']}", "w")
        while not all(os.path.exists(f"at-{key}") for key in ("a", "b")):
            time.sleep(0.005)
        done(os.getpid())
    """

    async def scenario() -> None:
        async with serving_with(bench, code, concurrency=2) as executor:
            attempts = [bench.attempt(item=Item(0, key, None), log_path=bench.folder / key) for key in ("a", "b")]
            pids = await asyncio.gather(*(executor.run(attempt, bench.channel) for attempt in attempts))
            assert len({bench.output(outcome) for outcome in pids}) == 2
            again = [bench.output(await executor.run(attempt, bench.channel)) for attempt in attempts]
            assert again == [bench.output(outcome) for outcome in pids]

    bench.run(scenario())


def test_standard_error_is_the_log_emptied_for_each_item(bench: Bench) -> None:
    served(bench, "print('about', item['key'], file=sys.stderr); done(1)", "a", "b")
    assert bench.log() == "about k1\n"


def test_at_the_end_of_input_it_may_close(bench: Bench) -> None:
    served(bench, "done(1)", "a")
    assert (bench.folder / "closed").exists()


def test_one_that_does_not_end_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.2)
    (outcome,) = served(bench, "done(os.getpid()); time.sleep(60)", "a")
    assert read_process(bench.output(outcome)) is None


def test_the_environment_tells_of_the_run_and_of_no_item(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_CHANNEL", "/of/an/outer/run")
    bench.environ["FROM_ENV_FILE"] = "1"
    (outcome,) = served(bench, "done(dict(os.environ))")
    environ = bench.output(outcome)
    assert (environ["AGENTRUN_RUN_ID"], environ["AGENTRUN_PARAM_CUSTOMER"]) == ("r", "acme")
    assert environ["FROM_ENV_FILE"] == "1"
    assert not [name for name in environ if name.startswith("AGENTRUN_ITEM") or name == "AGENTRUN_CHANNEL"]


def test_braces_in_its_words_are_those_of_a_command(bench: Bench) -> None:
    async def scenario() -> None:
        script = """read -r item; id=${item#*'"id":"'}; echo '{"type":"done","id":"'${id%%'"'*}'","output":{}}'"""
        async with opened(bench, "sh", "-c", escape(script)) as executor:
            assert bench.output(await executor.run(bench.attempt(), bench.channel)) == {}

    bench.run(scenario())


def test_a_big_item_and_a_big_output_pass_and_a_bigger_one_does_not(bench: Bench) -> None:
    big = "x" * (8 * 2**20)
    one, two = served(bench, "done(item['data'] * (1 + 2 * item['index']))", big, big)
    assert bench.output(one) == big
    assert two.kind == "failed" and "over 16 MiB" in message_of(two)


def test_an_endless_line_fails_the_attempt(bench: Bench) -> None:
    (outcome,) = served(bench, "os.write(1, b'x' * (33 * 2**20)); time.sleep(60)", "a")
    assert outcome.kind == "failed" and "over 32 MiB" in message_of(outcome)


def test_it_leaves_no_descriptor_open(bench: Bench) -> None:
    before = len(os.listdir("/dev/fd"))
    served(bench, "done(1) if item['index'] else sys.exit(4)", *"abc")
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("name", [["x"], {"a": 1}, 5, None])
def test_a_step_whose_name_is_no_text_is_refused(bench: Bench, name: Any) -> None:
    code = f"done(ask({{'type': 'step_put', 'name': {name!r}, 'value': 1}}))"
    (outcome,) = served(bench, code, "a")
    assert "name" in bench.output(outcome)["error"]

"""Programs as agents: real ones, in a session of their own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from agentrun.agents.attempt import Outcome
from agentrun.agents.context import idempotency_key
from agentrun.agents.failure import judge
from agentrun.executors.programs.protocol import OUTPUT_LIMIT_BYTES
from agentrun.item import Item
from agentrun.system.guardian import read_process

if TYPE_CHECKING:
    from unit.executors.conftest import Bench


def attempted(bench: Bench, *command: str, job: dict[str, Any] | None = None, **attempt: Any) -> Outcome:
    """The outcome of one attempt with that command."""
    outcomes: list[Outcome] = []

    async def scenario() -> None:
        async with bench.programs(*command, **(job or {})) as executor:
            outcomes.append(await executor.run(bench.attempt(**attempt), bench.channel))

    bench.run(scenario())
    return outcomes[0]


def python(code: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", dedent(code))


@pytest.mark.parametrize(
    ("printed", "expected"),
    [("hello\n", "hello"), ("a\n\n", "a\n"), ("a\r\n", "a"), ("a\r", "a\r"), ("", ""), ("ü €\n", "ü €")],
)
def test_standard_output_is_the_output_less_one_newline(bench: Bench, printed: str, expected: str) -> None:
    assert bench.output(attempted(bench, "printf", "%s", printed)) == expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Item(3, "k", {"id": "ü", "n": 1}), {"index": 3, "key": "k", "data": {"id": "ü", "n": 1}}),
        (Item(0, "a.txt", None, Path("/x/a.txt")), {"index": 0, "key": "a.txt", "path": "/x/a.txt"}),
        (Item(1, "line", None, None, "line"), {"index": 1, "key": "line", "text": "line"}),
        (Item(1, "k", 2**70), {"index": 1, "key": "k", "data": 2**70}),
    ],
)
def test_the_item_is_on_standard_input_as_json(bench: Bench, item: Item, expected: dict[str, Any]) -> None:
    assert json.loads(bench.output(attempted(bench, "cat", item=item))) == expected


def test_a_big_item_does_not_deadlock_with_a_program_that_does_not_read(bench: Bench) -> None:
    big = Item(0, "k", "x" * (5 * 1024 * 1024))
    assert bench.output(attempted(bench, "echo", "ok", item=big)) == "ok"
    assert bench.output(attempted(bench, *python("import sys; print(len(sys.stdin.read()))"), item=big)) == str(
        len(big.data) + len('{"index":0,"key":"k","data":""}\n')
    )


def test_placeholders_are_filled_and_never_seen_by_a_shell(bench: Bench) -> None:
    item = Item(0, "$(id) ; {key}", None, None, "$(id) ; {key}")
    assert bench.output(attempted(bench, "printf", "%s|", "{}", "{index}", item=item)) == "$(id) ; {key}|0|"


def test_the_environment_tells_of_the_attempt(bench: Bench) -> None:
    bench.environ["FROM_ENV_FILE"] = "1"
    code = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid()]))"
    params = {"customer": "acme", "max-items": 3, "flag": True}
    outcome = attempted(bench, *python(code), number=2, generation=1, params=params, job={"parse": "json"})
    environ, folder, leads = bench.output(outcome)
    assert folder == str(bench.folder.resolve()) and leads
    expected = {
        "AGENTRUN_RUN_ID": "r",
        "AGENTRUN_ITEM_KEY": "k",
        "AGENTRUN_ITEM_INDEX": "0",
        "AGENTRUN_ATTEMPT": "2",
        "AGENTRUN_IDEMPOTENCY_KEY": idempotency_key("s", "k", 1),
        "AGENTRUN_PARAM_CUSTOMER": "acme",
        "AGENTRUN_PARAM_MAX_ITEMS": "3",
        "AGENTRUN_PARAM_FLAG": "true",
        "FROM_ENV_FILE": "1",
        "HOME": os.environ["HOME"],
    }
    assert {name: environ.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("script", "kind", "verdict", "message"),
    [
        ("echo why >&2; exit 3", "failed", "transient", "exit 3: why"),
        ("exit 3", "failed", "transient", "exit 3"),
        ("exit 75", "failed", "transient", "exit 75"),
        ("echo bad >&2; exit 65", "failed", "item", "exit 65: bad"),
        ("echo a >&2; echo empty >&2; echo >&2; exit 77", "skipped", "skip", "empty"),
        ("exit 127", "failed", "everyone", "exit 127"),
        ("kill -9 $$", "failed", "transient", "killed by signal 9 (SIGKILL)"),
        (r"printf 'a\033[31mred\033[0m\007 b\n' >&2; exit 1", "failed", "transient", "exit 1: ared b"),
    ],
)
def test_the_exit_code_and_the_last_line_of_stderr_are_told(
    bench: Bench, script: str, kind: str, verdict: str, message: str
) -> None:
    outcome = attempted(bench, "sh", "-c", script)
    assert outcome.failure is not None
    assert (outcome.kind, judge(outcome.failure).verdict, outcome.failure.message) == (kind, verdict, message)


def test_stderr_is_in_the_log_and_not_in_the_output(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    assert bench.output(attempted(bench, "sh", "-c", "echo out; echo err >&2")) == "out"
    assert bench.log() == "err\n"
    assert capfd.readouterr() == ("", "")


def test_json_is_parsed_and_anything_else_is_a_failed_attempt(bench: Bench) -> None:
    def parsed(text: str) -> Outcome:
        return attempted(bench, "printf", "%s", "{text}", item=Item(0, "k", None, None, text), job={"parse": "json"})

    assert bench.output(parsed(' {"a": [1, 2.5, null]}\n')) == {"a": [1, 2.5, None]}
    assert bench.output(parsed("18446744073709551615")) == 2**64 - 1
    for text in ('{"a": 1', "", "Sure! {}", "NaN"):
        outcome = parsed(text)
        assert outcome.failure is not None
        assert (outcome.kind, outcome.failure.exit_code) == ("failed", 0)
        assert "not JSON" in outcome.failure.message and "column" in outcome.failure.message
        assert judge(outcome.failure).verdict == "transient"
    too_big = parsed('{"n": 36893488147419103232}').failure
    assert too_big is not None and too_big.origin == "output" and "output.n" in too_big.message


def test_output_that_is_not_utf8_is_kept_as_far_as_it_goes_and_said(bench: Bench) -> None:
    assert bench.output(attempted(bench, "printf", r"caf\351 ok\n")) == "caf\ufffd ok"
    assert [message["type"] for message in bench.messages] == ["log"]
    assert "not UTF-8 (byte 3)" in bench.messages[0]["text"]


def test_output_may_be_16_mib_and_no_more(bench: Bench) -> None:
    code = "import sys, os, time; sys.stdout.write('x' * int(sys.argv[1])); sys.stdout.flush(); {}"
    exactly = attempted(bench, *python(code.format("")), str(OUTPUT_LIMIT_BYTES))
    assert len(bench.output(exactly)) == OUTPUT_LIMIT_BYTES
    for then in ("", "open('pid', 'w').write(str(os.getpid())); time.sleep(600)"):
        outcome = attempted(bench, *python(code.format(then)), str(OUTPUT_LIMIT_BYTES + 1))
        assert outcome.failure is not None
        assert (outcome.kind, outcome.failure.origin) == ("failed", "output")
        assert "over 16 MiB" in outcome.failure.message


TREE = """
    import os, subprocess, sys, time
    daemon = "import os, time; os.setsid(); open('daemon', 'w').write(str(os.getpid())); time.sleep(600)"
    # The daemon's parent goes, so that neither session nor descent leads to it.
    subprocess.run([sys.executable, "-c",
                    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])", daemon])
    while not os.path.exists("daemon") or not open("daemon").read():
        time.sleep(0.01)
    subprocess.Popen(["sleep", "600"])
    open("program", "w").write(str(os.getpid()))
"""


def test_a_timeout_ends_the_whole_tree(bench: Bench) -> None:
    # Long enough for three interpreters to start on a busy machine.
    outcome = attempted(bench, *python(TREE + "    time.sleep(600)\n"), timeout_seconds=12)
    assert outcome.failure is not None
    assert (outcome.kind, outcome.failure.message) == ("failed", "timed out after 12 s")
    pids = [int((bench.folder / name).read_text()) for name in ("program", "daemon")]
    assert [read_process(pid) for pid in pids] == [None, None]


def test_cancelling_ends_the_whole_tree(bench: Bench) -> None:
    async def scenario() -> None:
        async with bench.programs(*python(TREE + "    time.sleep(600)\n")) as executor:
            task = asyncio.create_task(executor.run(bench.attempt(), bench.channel))
            program = bench.folder / "program"
            await bench.eventually(lambda: program.exists() and program.read_text() != "", "it runs")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for name in ("program", "daemon"):
                assert read_process(int((bench.folder / name).read_text())) is None

    bench.run(scenario())


def test_a_failed_attempt_leaves_nothing_at_work(bench: Bench) -> None:
    assert attempted(bench, *python(TREE + "    sys.exit(1)\n")).kind == "failed"
    assert read_process(int((bench.folder / "daemon").read_text())) is None


def test_a_daemon_that_holds_standard_output_open_does_not_hold_up_a_done_attempt(bench: Bench) -> None:
    outcome = attempted(bench, "sh", "-c", "sleep 600 & echo $!")
    pid = int(bench.output(outcome))
    assert read_process(pid) is not None
    os.kill(pid, 9)


def test_what_no_argument_can_hold_is_the_items_own_failure(bench: Bench) -> None:
    too_long = attempted(bench, "echo", "{text}", item=Item(0, "k", None, None, "x" * 200_000))
    nul = attempted(bench, "echo", "{text}", item=Item(0, "k", None, None, "a\0b"))
    key = attempted(bench, "true", item=Item(0, "a\0b"))
    in_all = attempted(bench, "echo", *["{text}"] * 40, item=Item(0, "k", None, None, "x" * 100_000))
    unknown = attempted(bench, "echo", "{field}", item=Item(0, "k", {"fjeld": 1}))
    for outcome, said in [(too_long, "128 KiB"), (nul, "NUL"), (key, "NUL"), (in_all, "too long"), (unknown, "fjeld")]:
        assert outcome.kind == "failed" and outcome.failure is not None
        assert judge(outcome.failure).verdict == "item"
        assert said in outcome.failure.message


def test_a_program_that_cannot_be_started_stops_the_run(bench: Bench) -> None:
    program = bench.folder / "run.sh"
    for text, code in [("#!/no/such/interpreter\n", 127), ("not a program", 126)]:
        program.write_text(text)
        program.chmod(0o755)
        outcome = attempted(bench, "./run.sh")
        assert outcome.failure is not None and outcome.failure.exit_code == code
        assert judge(outcome.failure).verdict == "everyone"
        assert "run.sh" in outcome.failure.message


def test_at_most_concurrency_programs_run_at_a_time(bench: Bench) -> None:
    script = 'touch "run.$1"; ls run.* | wc -l; sleep 0.05; rm "run.$1"'

    async def scenario() -> None:
        async with bench.programs("sh", "-c", script, "sh", "{index}", concurrency=2) as executor:
            attempts = [bench.attempt(item=Item(n, str(n)), log_path=bench.folder / f"{n}.log") for n in range(6)]
            outcomes = await asyncio.gather(*(executor.run(a, bench.channel) for a in attempts))
            assert max(int(bench.output(outcome)) for outcome in outcomes) == 2

    bench.run(scenario())

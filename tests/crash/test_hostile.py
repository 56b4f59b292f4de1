"""Hostile items, outputs, job files and checkpoints: an item's own error or a clear refusal, never a surprise."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import random
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from agentrun.agents.attempt import Attempt, Channel, Outcome, addressed
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Log
from agentrun.checkpoint.checkpoint import Checkpoint, RunContext, decode_checkpoint, encode_checkpoint
from agentrun.errors import AgentrunError, CheckpointError, ItemsError, JobError
from agentrun.items.open import open_source
from agentrun.job.build import build_job
from agentrun.job.env import load_env_file
from agentrun.job.fields import ITEMS, RUN, TOP, Layer
from agentrun.job.file import read_job_file
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.launch import Launch
from agentrun.store.memory import MemoryStore
from agentrun.values import json as jsontext
from agentrun_cli.terminal import clean, clean_text
from crash.command_line import COMMAND, OUR_FRAME, Place, place
from crash.harness import Long
from crash.workload import scratch
from waiting import PATIENCE_SECONDS

# ---- Hypothesis: each property is a function of one example, called in this process

nasty = st.sampled_from(
    [
        "",
        "\0",
        "\ud800",
        "\u2028",
        "../../x",
        "-rf",
        "[/x]",
        "\x1b]0;owned\x07",
        "\x9b31m",
        "{}",
        "{path}",
        "\u202e",
        "a\nb",
    ]
)
texts: SearchStrategy[str] = st.one_of(nasty, st.text(max_size=30), st.text(st.characters(), max_size=8))
# As executors hand them on.
sayings = texts.map(lambda text: text.encode("utf-8", "backslashreplace").decode())
values: SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.just(2**64), st.just(float("nan"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def job_layers(draw: st.DrawFn) -> dict[str, Any]:
    """In the shape of a job file, more or less."""
    plausible: dict[str, SearchStrategy[Any]] = {
        "items": st.dictionaries(st.sampled_from(ITEMS) | texts, texts | values, max_size=3),
        "run": st.dictionaries(st.sampled_from(RUN) | texts, st.integers(-2, 5) | texts | values, max_size=4),
        "params": st.dictionaries(texts, values, max_size=3),
        "command": st.lists(texts, max_size=3),
        "agent": st.just("agent.py:f") | texts,
    }
    layer: dict[str, Any] = {"items": {"lines": "items.txt"}, "agent": "agent.py:f"} if draw(st.booleans()) else {}
    for name in draw(st.lists(st.sampled_from(TOP), max_size=5, unique=True)):
        layer[name] = draw(st.one_of(plausible.get(name, texts), values))
    return layer


def check_job(layer: dict[str, Any]) -> None:
    try:
        job = build_job(
            [Layer("job.toml", layer)], base=Path("/nowhere"), file=Path("/nowhere/job.toml"), default_name="job"
        )
    except JobError as error:
        assert str(error).startswith("job.toml"), error
        return
    assert "/" not in job.name and job.name not in ("", ".", "..") and "\0" not in job.name
    orjson.dumps(job.identity())
    assert job.output_path(run_id="r", date="d").name not in ("", ".", "..")


def check_job_text(text: bytes) -> None:
    with_text(text, lambda path: read_job_file(path), (JobError,))


def check_env_text(text: bytes) -> None:
    with_text(text, lambda path: load_env_file(path), (JobError,))


@cache
def shelf() -> Path:
    """One file for all examples; in memory."""
    return Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp") / f"agentrun-hostile-{os.getpid()}"


def with_text(text: bytes, read: Callable[[Path], Any], refusals: tuple[type[AgentrunError], ...]) -> Any:
    shelf().write_bytes(text)
    try:
        return read(shelf())
    except refusals as error:
        assert "\n" not in error.message
        return None
    finally:
        shelf().unlink()


file_texts: SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=80),
    st.lists(st.one_of(values.map(lambda v: json.dumps(v)), texts), max_size=5).map(
        lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")
    ),
    st.lists(st.lists(texts, max_size=3).map(",".join), max_size=5).map(
        lambda lines: "\n".join(["id,text", *lines]).encode("utf-8", "surrogatepass")
    ),
)


def check_items(example: tuple[bytes, str, str | None]) -> None:
    """Listed twice, with the same keys; each item can be read."""
    text, kind, key = example

    def read(path: Path) -> None:
        spec = ItemsSpec(kind=kind, pattern=path.name, key=key if kind in ("jsonl", "csv") else None)  # type: ignore[arg-type]
        source = open_source(spec, path.parent)
        keys = []
        for index, raw in enumerate(source):
            found = source.identify(raw)
            assert found.key and len(found.key.encode("utf-8", "surrogatepass")) <= 1024
            source.item(raw, index, found.key)
            keys.append(found.key)
            assert source.where(index)
        assert [source.identify(raw).key for raw in source] == keys

    with_text(text, read, (ItemsError,))


def a_checkpoint() -> dict[str, Any]:
    context = RunContext(launches=1, date="2024-01-01")
    made = Checkpoint(job="job", run_id="20240101-abc", seq=3, context=context)
    found: dict[str, Any] = orjson.loads(encode_checkpoint(made))
    return found


def check_state(changes: dict[str, Any]) -> None:
    """An edited state.json is refused, or with --accept-edits taken as a whole."""
    text = json.dumps({**a_checkpoint(), **changes}).encode()
    try:
        decode_checkpoint(text, where="state.json")
    except CheckpointError:
        pass
    else:
        raise AssertionError("an edit was not seen")
    try:
        taken = decode_checkpoint(text, where="state.json", accept_edits=True)
    except CheckpointError:
        return
    again = decode_checkpoint(encode_checkpoint(taken), where="state.json")
    assert again.seq == taken.seq and again.outputs == taken.outputs


def check_bytes_of_state(text: bytes) -> None:
    for accept_edits in (False, True):
        try:
            decode_checkpoint(text, where="state.json", accept_edits=accept_edits)
        except CheckpointError as error:
            assert error.message.startswith("state.json: ")
        else:
            assert accept_edits


_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_words(text: str) -> None:
    """What is shown is one line without control codes, and can be printed anywhere."""
    assert not _CONTROL.search(clean(text)), repr(clean(text))
    assert not _CONTROL.search(clean_text(text).replace("\n", "")), repr(clean_text(text))
    clean(text).encode()
    clean_text(text).encode()


def check_output_value(value: Any) -> None:
    """What an agent returns comes back the same, or is refused with the place inside it."""
    try:
        text = jsontext.encode(value)
    except jsontext.NotJson as error:
        assert str(error).startswith("output")
        return
    back = jsontext.decode(text)
    assert back == value, (back, value)


class Returns:
    """An executor that ends items as it is told, with words of any kind."""

    def __init__(self, ends: list[tuple[str, str]]) -> None:
        self._ends = ends

    async def start(self) -> None:
        pass

    async def rest(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        kind, words = self._ends[attempt.item.index % len(self._ends)]
        await addressed(attempt.id, channel)(Log(words))
        if kind == "done":
            return Outcome("done", orjson.dumps(words))
        failure = Failure("exception", words, ("agentrun.errors.Fail",))
        return Outcome("failed" if kind == "failed" else "skipped", failure=failure)


def check_launch(example: tuple[list[Any], list[tuple[str, str]]]) -> None:
    """Any Python items, any ends: the launch ends with a code of the table, and its results can be read."""
    items, ends = example
    with scratch() as base:
        job = Job(
            name="job",
            base=base,
            items=ItemsSpec(kind="python", pattern=""),
            agent="a.py:f",
            params={},
            output="results.jsonl",
            concurrency=3,
            stop_after_failures=0,
        )
        store = MemoryStore()
        launch = Launch(job, store, agent="v1", items=items)
        try:
            launch.prepare()
            summary = asyncio.run(launch.work(Returns(ends)))
        except AgentrunError as error:
            assert error.exit_code == 2, error
            return
        finally:
            launch.close()
        assert summary.exit_code in (0, 1), summary
        assert {entry.name for entry in base.iterdir()} <= {"results.jsonl", "results.partial.jsonl"}
        for path in base.iterdir():
            for line in path.read_bytes().split(b"\n")[:-1]:
                orjson.loads(line)


PROPERTIES: dict[str, tuple[SearchStrategy[Any], Callable[[Any], None], int]] = {
    "job": (job_layers(), check_job, 500),
    "job file": (file_texts, check_job_text, 100),
    "env file": (file_texts, check_env_text, 100),
    "items": (
        st.tuples(file_texts, st.sampled_from(["lines", "jsonl", "csv"]), st.sampled_from([None, "id", "text"])),
        check_items,
        400,
    ),
    "state.json, fields": (
        st.dictionaries(st.sampled_from([*a_checkpoint(), "more"]), values, min_size=1, max_size=3),
        check_state,
        300,
    ),
    "state.json, bytes": (st.one_of(st.binary(max_size=60), file_texts), check_bytes_of_state, 100),
    "words": (texts, check_words, 250),
    "outputs": (values, check_output_value, 150),
    "launch": (
        st.tuples(
            st.lists(st.one_of(texts, st.dictionaries(texts, values, max_size=3)), max_size=6),
            st.lists(st.tuples(st.sampled_from(["done", "failed", "skipped"]), sayings), min_size=1, max_size=4),
        ),
        check_launch,
        100,
    ),
}
"""2,000 in all."""


def try_examples(name: str, count: int, number: int) -> None:
    strategy, check, _ = PROPERTIES[name]
    trying = settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    seed(number)(trying(given(strategy)(lambda example: check(example))))()


@pytest.mark.parametrize("name", PROPERTIES)
def test_no_example_is_a_surprise(name: str) -> None:
    try_examples(name, PROPERTIES[name][2], 0)


# ---- the worst of them, through the real command

OWNED = [
    "\x1b]0;owned\x07",
    "\x1b[31;45m",
    "\x9b31m",
    "\x1b[2J",
    "[/x]",
    "[link=http://x]",
    "\u202eevil",
    "\x07\x08\x7f",
]
HOSTILE_ITEMS: list[Any] = [
    *(
        {"id": text, "text": text}
        for text in [*OWNED, "../../x", "-rf", "\u2028", "a\nb", "k" * 1000, ".", "..", "~/x"]
    ),
    {"id": "wide", "n": 2**64},
    {"id": "deep", "n": json.loads("[" * 150 + "]" * 150)},
]
AGENT = """
import json, sys

def worst(item):
    print("\\x1b]0;owned\\x07 prints", item.key)
    number = item.index
    if number % 8 == 0: return float("nan")
    if number % 8 == 1: return "\\ud800"
    if number % 8 == 2: return 2**64
    if number % 8 == 3:
        deep = []
        for _ in range(5000): deep = [deep]
        return deep
    if number % 16 == 12: raise ValueError("\\ud800 and \\udcff")
    if number % 8 == 4: raise ValueError("\\x1b]0;owned\\x07[/x]\\x9b31m" + item.key)
    if number % 8 == 5: return {1: 2}
    return {"key": item.key, "says": "\\x1b[31;45m[/x]\\u2028\\x00"}

async def worst_async(item):
    return worst(item)
"""
# What the terminal may get: our own colours, and what the bar needs to draw itself.
_ALLOWED = re.compile(rb"\x1b(?:[78]|\[(?:[0-9;]*m|[0-9]*[ABKJ]|\?7[lh]))")


def lay_out(job: Place, isolation: str, agent: str = "worst") -> None:
    (job.base / "agent.py").write_text(AGENT)
    (job.base / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in HOSTILE_ITEMS))
    (job.base / "job.toml").write_text(
        f'name = "job"\nagent = "agent.py:{agent}"\n{isolation}\noutput = "results.jsonl"\n'
        '[items]\njsonl = "items.jsonl"\nkey = "id"\n'
        "[run]\nconcurrency = 4\nretries = 0\nstop_after_failures = 0\n"
    )


def on_a_terminal(job: Place, *arguments: str) -> tuple[int, bytes]:
    """The exit code, and every byte that the terminal got."""
    ours, theirs = pty.openpty()
    environ = {**job.environment(TERM="xterm-256color", COLUMNS="100"), "HOME": str(job.base.parent / "home")}
    process = subprocess.Popen(
        [COMMAND, *arguments], cwd=job.base, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = bytearray()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            said += piece
    os.close(ours)
    return process.wait(timeout=PATIENCE_SECONDS), bytes(said)


def check_terminal(said: bytes) -> None:
    rest = _ALLOWED.sub(b"", said)
    assert b"\x1b[31;45m" not in said, said[-2000:]
    text = rest.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    found = re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)
    assert found is None, f"the terminal got {found!r} in …{text[max(0, found.start() - 200) : found.end() + 50]!r}"
    assert not OUR_FRAME.search(text) and "bug in agentrun" not in text, text[-3000:]


def tree(base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in base.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize("isolation", ["", 'isolation = "thread"'])
def test_hostile_items_and_outputs_fail_alone_and_no_control_code_reaches_the_terminal(isolation: str) -> None:
    with place() as job:
        lay_out(job, isolation)
        (job.base.parent / "home").mkdir()
        before = tree(job.base.parent)
        code, said = on_a_terminal(job, "start", "job.toml")
        assert code == 1, said[-3000:]
        check_terminal(said)
        lines = [orjson.loads(line) for line in (job.base / "results.partial.jsonl").read_bytes().split(b"\n")[:-1]]
        done = [n for n in range(len(HOSTILE_ITEMS)) if n % 8 in (6, 7)]
        assert [line["index"] for line in lines] == done
        assert all(line["output"]["says"] == "\x1b[31;45m[/x]\u2028\0" for line in lines)
        new = tree(job.base.parent) - before - {"work/results.partial.jsonl", "work/.results.claim", "work/said.log"}
        assert all(name == "work/.agentrun" or name.startswith("work/.agentrun/") for name in new), new
        state = {name.removeprefix("work/.agentrun/") for name in new}
        assert all(
            re.fullmatch(r"(\.gitignore|job|job/[a-z0-9.-]+|job/logs(/done)?/[A-Za-z0-9._-]+|work/.agentrun)", n)
            for n in state
        ), state


@pytest.mark.parametrize(
    "command",
    [["status"], ["items"], ["failures"], ["show", "--index", "4"], ["log"], ["log", "--index", "4"], ["results"]],
    ids=" ".join,
)
def test_no_command_shows_control_codes_of_users_data(command: list[str], hostile_run: Place) -> None:
    name, *rest = command
    code, said = on_a_terminal(hostile_run, name, "job", *rest)
    assert code in (0, 1), said[-2000:]
    check_terminal(said)


@pytest.fixture(scope="module")
def hostile_run() -> Any:
    with place() as job:
        (job.base.parent / "home").mkdir()
        lay_out(job, "", agent="worst_async")
        assert job.finish() == 1, job.said
        yield job


PROGRAMS = {
    "300 MB": ("head -c 300000000 /dev/zero", "over 16 MiB"),
    "300 MB of errors": ("head -c 300000000 /dev/zero >&2", None),
    "not UTF-8": (r"printf '\377\376 ok'", None),
    "escapes": (r"printf '\033]0;owned\007 \302\233'; exit 65", "exit 65"),
    "escapes among the errors": (r"printf '\033]0;owned\007 \302\233' >&2; exit 65", "exit 65"),
    "deep": ("head -c 5000 /dev/zero | tr '\\0' '['", "not JSON"),
    "wide": ("echo 18446744073709551616", "beyond 64 bits"),
    "NaN": ("echo NaN", "not JSON"),
}


MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process to start it from: until it is the program, a child counts as large as its parent, and pytest is."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_fails_alone(name: str) -> None:
    script, reason = PROGRAMS[name]
    with place(kind="command", total=2) as job:
        parse = 'parse = "json"' if name in ("deep", "wide", "NaN") else ""
        (job.base / "agent.sh").write_text(f'#!/bin/sh\n[ "$1" = 1 ] && {{ echo 1; exit; }}\n{script}\n')
        (job.base / "job.toml").write_text(
            f'name = "job"\ncommand = ["./agent.sh", "{{}}"]\n{parse}\noutput = "results.jsonl"\n'
            '[items]\nlines = "items.txt"\n[run]\nretries = 0\n'
        )
        ran = subprocess.run(
            [sys.executable, "-c", MEASURED, COMMAND, "start", "job.toml"],
            cwd=job.base,
            env=job.environment(),
            capture_output=True,
        )
        said = ran.stderr
        assert ran.returncode == (0 if reason is None else 1), said
        check_terminal(said)
        assert reason is None or reason in said.decode(), said
        most = int(ran.stdout.split()[-1])
        assert most < 200 * 1024, f"it took {most // 1024} MiB of memory"
        logs = [path.stat().st_size for path in (job.folder / "logs").glob("*")]
        assert sum(logs) <= 3 << 20, logs


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (b'{"id": "%s"}\n' % (b"k" * 100_000), "1 KiB"),
        (b'{"id": 1.5}\n', "line 1"),
        (b'{"id": "a"}\n{"id": "a"}\n', "line"),
        (b"[" * 5000 + b"]" * 5000 + b"\n", "line 1"),
        (b'{"id": NaN}\n', "line 1"),
        (b"\xff\xfe\n", "line 1"),
        (b'{"id": "\\u0000"}\n', "line 1"),
        (b'{"id": "\\ud800"}\n', "line 1"),
    ],
    ids=["100 kB", "float", "twice", "deep", "NaN", "not UTF-8", "NUL", "surrogate"],
)
def test_items_that_cannot_be_are_refused_before_anything_is_run(items: bytes, words: str) -> None:
    with place() as job:
        lay_out(job, "")
        (job.base / "items.jsonl").write_bytes(items)
        assert job.finish() == 2, job.said
        assert words in job.said, job.said
        job.check_words()
        assert not (job.folder / "state.json").exists()


def _long(rng: random.Random, minutes: float) -> tuple[int, int]:
    deadline, tried, failed = time.monotonic() + minutes * 60, 0, 0
    while time.monotonic() < deadline:
        for name, (_, _, count) in PROPERTIES.items():
            number = rng.getrandbits(32)
            try:
                try_examples(name, count, number)
            except Exception as error:
                failed += 1
                print(f"FAILED: {name} with the seed {number}: {type(error).__name__}: {error}", file=sys.stderr)
            tried += count
    return tried, failed


LONG: dict[str, Long] = {"hostile items, outputs and files": _long}

"""The real command, driven from outside: a folder with a job, launches of it, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson

from agentrun.job.address import STORE_VARIABLE
from agentrun.store.folder.store import FolderStore
from agentrun.store.jobs import Jobs
from agentrun.store.places import close_places
from agentrun.store.port import Reader
from crash.workload import scratch
from waiting import PATIENCE_SECONDS

COMMAND = str(Path(sys.executable).parent / "agentrun")
TESTS = Path(__file__).resolve().parent.parent
NAME = "job"
OUR_FRAME = re.compile(r'File "[^"]*/(agentrun|agentrun_cli|typer|asyncio)/(?!entry\.py", line [1-9], in <module>)')
"""In a traceback; but for Ctrl-C before our first lines, when Python itself is not up yet."""
MARK, LAUNCH, CALLS = "CRASH_MARK", "CRASH_LAUNCH", "CRASH_CALLS"
"""In the environment of a launch and of all that comes of it: whose it is, which one, and where attempts are noted."""

# Each attempt leaves a line: the number of the launch, and the item.
PYTHON_AGENT = """
import asyncio, os, time

def begin(item):
    fd = os.open(os.environ["CRASH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{os.environ['CRASH_LAUNCH']} {item.text}\\n".encode())
    os.close(fd)

def output_of(item):
    return {"square": int(item.text) ** 2, "text": "\\u00e9" * (int(item.text) % 50)}

def sync_agent(item):
    begin(item)
    time.sleep(0.001)
    return output_of(item)

async def async_agent(item):
    begin(item)
    await asyncio.sleep(0.001)
    return output_of(item)
"""
SHELL_AGENT = """#!/bin/sh
echo "$CRASH_LAUNCH $1" >> "$CRASH_CALLS"
echo "{\\"square\\": $(($1 * $1))}"
"""
AGENTS = {
    "async": 'agent = "agent.py:async_agent"',
    "process": 'agent = "agent.py:sync_agent"',
    "thread": 'agent = "agent.py:sync_agent"\nisolation = "thread"',
    "command": 'command = ["./agent.sh", "{}"]\nparse = "json"',
}


def output_of(kind: str, number: int) -> dict[str, Any]:
    """What the agents above return."""
    found: dict[str, Any] = {"square": number**2}
    return found if kind == "command" else {**found, "text": "\u00e9" * (number % 50)}


@dataclass
class Place:
    """A folder with a job of `total` numbers, and the launches of it."""

    base: Path
    kind: str = "async"
    total: int = 50
    concurrency: int = 1
    run: dict[str, Any] = field(default_factory=dict)
    """More under [run]."""
    agent: str | None = None
    """Another agent.py and agent.sh."""
    head: str = ""
    state_dir: Path | None = None
    output: Path | None = None
    name: str = NAME
    environ: dict[str, str] = field(default_factory=dict)
    """More in the environment of each launch; with AGENTRUN_STORE, its state is there, and no longer in the folder."""
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    launches: int = 0

    def lay_out(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)
        script = SHELL_AGENT if self.agent is None else self.agent
        (self.base / "agent.py").write_text(PYTHON_AGENT if self.agent is None else self.agent)
        (self.base / "agent.sh").write_text(script)
        (self.base / "agent.sh").chmod(0o755)
        (self.base / "items.txt").write_text("".join(f"{n}\n" for n in range(self.total)))
        run = {"concurrency": self.concurrency, "crash_limit": 0, "stop_after_failures": 0} | self.run
        lines = [f'name = "{self.name}"', AGENTS[self.kind], self.head, f'output = "{self.results_path}"']
        lines += ["[items]", 'lines = "items.txt"', "[run]", *(f"{name} = {json.dumps(v)}" for name, v in run.items())]
        (self.base / "job.toml").write_text("\n".join(lines) + "\n")

    @property
    def folder(self) -> Path:
        return (self.state_dir or self.base / ".agentrun") / self.name

    @property
    def results_path(self) -> Path:
        return self.output or self.base / "results.jsonl"

    @property
    def results(self) -> bytes:
        """What an undisturbed run writes, without any of the code under test."""
        lines = ({"index": n, "key": str(n), "output": output_of(self.kind, n)} for n in range(self.total))
        return b"".join(orjson.dumps(line) + b"\n" for line in lines)

    def environment(self, **more: str) -> dict[str, str]:
        # Without compiled modules a launch would take twice as long to start.
        unwanted = ("AGENTRUN_", "COV", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        ours = {MARK: self.mark, LAUNCH: str(self.launches), CALLS: str(self.base / "calls.log"), "TERM": "dumb"}
        return {**kept, **ours, **self.environ, **more}

    def start(self, *arguments: str, command: str = "start", **environ: str) -> subprocess.Popen[bytes]:
        """A launch, as a process of its own. What it says is in `said`."""
        self.launches += 1
        state = ["--state-dir", str(self.state_dir)] if self.state_dir else []
        with open(self.base / "said.log", "ab") as said:
            return subprocess.Popen(
                [COMMAND, command, "job.toml", *state, *arguments],
                cwd=self.base,
                env=self.environment(**environ),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def finish(self, *arguments: str, **environ: str) -> int:
        """A launch, to its end."""
        return self.start(*arguments, **environ).wait(timeout=PATIENCE_SECONDS)

    @property
    def said(self) -> str:
        return (self.base / "said.log").read_text(errors="replace")

    def calls(self) -> dict[int, list[int]]:
        """By launch: the items of its attempts, in order."""
        found: dict[int, list[int]] = defaultdict(list)
        try:
            text = (self.base / "calls.log").read_text()
        except FileNotFoundError:
            return found
        for line in text.split("\n")[:-1]:
            launch, item = line.split()
            found[int(launch)].append(int(item))
        return found

    def begun(self) -> int:
        """How many attempts there were."""
        try:
            return (self.base / "calls.log").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    @contextmanager
    def _reader(self) -> Iterator[Reader]:
        """A look at the store that the environment names."""
        with patch.dict(os.environ, self.environ):
            try:
                with Jobs(self.folder.parent).store(self.name).reader() as reader:
                    yield reader
            finally:
                close_places()

    def done(self) -> set[int]:
        """The items that are finished on disk now: those a launch of this moment would take as such."""
        if STORE_VARIABLE in self.environ:
            with self._reader() as reader:
                return {int(record.key) for _, record in reader.records() if record.kind == "done"}
        if not (self.folder / "state.json").exists():
            return set(range(self.total)) if self.is_finished else set()
        store = FolderStore(self.folder)
        if store.load().finished is not None:
            return set(range(self.total))
        return {int(record.key) for _, record in store.scan() if record.kind == "done"}

    @property
    def is_finished(self) -> bool:
        if STORE_VARIABLE in self.environ:
            with self._reader() as reader:
                return reader.checkpoint is None and reader.summary is not None
        return any((self.folder / "runs").glob("*.json")) and not (self.folder / "state.json").exists()

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((self.folder / "state.json").read_bytes())
        return found

    def survivors(self, *, launch: int | None = None) -> set[int]:
        """The living processes that came of our launches, or of one of them."""
        wanted = {f"{MARK}={self.mark}".encode()} | ({f"{LAUNCH}={launch}".encode()} if launch is not None else set())
        return {pid for pid in living() if wanted <= environ_of(pid)}

    def check_words(self) -> None:
        """Whatever happened, it was not a surprise to us. A traceback of the agent's is its own business."""
        said = self.said
        assert not OUR_FRAME.search(said) and "bug in agentrun" not in said, said[-4000:]

    def check_results(self) -> None:
        assert self.is_finished, self.said[-2000:]
        found = self.results_path.read_bytes()
        assert found == self.results, f"the results are not those of an undisturbed run: {found[:300]!r}"
        self.check_words()

    def end(self) -> None:
        """What a failed test leaves is ended, with the mark that only we have."""
        for pid in self.survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def living() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if state not in (b"Z", b"X"):
                yield int(name)


def environ_of(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


@contextmanager
def place(**given: Any) -> Iterator[Place]:
    """A place in memory, laid out; nothing of it is alive afterwards."""
    with scratch() as base:
        made = Place(base / "work", **given)
        made.lay_out()
        try:
            yield made
        finally:
            made.end()


def exit_of(process: subprocess.Popen[Any]) -> int:
    """As a shell shows it."""
    code = process.wait(timeout=PATIENCE_SECONDS)
    return code if code >= 0 else 128 - code


def spread(total: int, weights: Sequence[int]) -> list[int]:
    """A total, shared out by weight."""
    shares = [total * weight // sum(weights) for weight in weights]
    return [share + (number < total - sum(shares)) for number, share in enumerate(shares)]

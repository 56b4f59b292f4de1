"""Agents from frameworks, which call a model and tools: which calls are made again after a kill, and are the results
those of an undisturbed run?

    PYTHONPATH=tests python -m crash.harness frameworks --set framework=langgraph --set way=plain --kills 20

The real command works on a job folder; the model is on loopback (`llm.tool_model`), in the harness's own process, and
the tools keep a log (`llm.tools`). A launch is killed once it has made a random number of calls, with all its
processes. What "finished" and "repeated" mean is said in `llm.repeats`. Repeated calls are counted, not judged: the
plain function repeats them, too.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash.command_line import COMMAND, TESTS, Place
from crash.harness import Fault, Launched, Scenario, Started
from crash.workload import scratch
from llm.repeats import TOOLS_LOG, Repeats, count_repeats, read_tools_log
from llm.tool_model import ToolModel, serve_tools
from waiting import eventually

JOBS = TESTS / "areas" / "frameworks" / "jobs"
ITEMS, CONCURRENCY = 20, 4
ANSWER_SECONDS = 0.03
"""So that some calls are in flight whenever it is killed."""
FILES = {"langgraph": "graph.py", "openai_agents": "assistant.py", "pydantic_ai": "assistant.py"}
WAYS: dict[str, dict[str, str]] = {
    "langgraph": {"plain": "plain", "own": "Own", "ours": "graph"},
    "openai_agents": {"plain": "plain", "own": "own", "ours": "assistant"},
    "pydantic_ai": {"plain": "plain", "ours": "assistant"},
}
"""By framework and way: what is the agent, in the file of `areas/frameworks/jobs`."""
Answer = Callable[["ToolJob"], None]


@dataclass
class ToolJob(Place):
    """A folder with a job whose agent is in one file, and the launches of it."""

    source: Path = Path()
    name_in_source: str = "agent"
    texts: Sequence[str] = ()
    """What the user says, an item each; see `llm.tool_model`."""
    url: str = ""
    """Of the model."""

    def lay_out(self) -> None:
        self.base.mkdir(parents=True)
        (self.base / self.source.name).write_bytes(self.source.read_bytes())
        (self.base / "items").mkdir()
        for number, text in enumerate(self.texts):
            (self.base / "items" / f"{number:02}.txt").write_text(text)
        (self.base / "job.toml").write_text(
            f'name = "job"\nagent = "{self.source.name}:{self.name_in_source}"\noutput = "results.jsonl"\n{self.head}\n'
            f'[items]\nfiles = "items/*.txt"\n'
            f"[run]\nconcurrency = {self.concurrency}\ncrash_limit = 0\nstop_after_failures = 0\n"
        )

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))
        keys = {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "sk-none"}
        # Nothing goes out of this machine.
        quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
        return super().environment(PYTHONPATH=path, **keys, **quiet, **more)

    def call(self, *words: str) -> str:
        """Another command on the job, to its end; what it prints."""
        done = subprocess.run(
            [COMMAND, *words], cwd=self.base, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Fault(f"agentrun {' '.join(words)} exited with {done.returncode}: {done.stderr}")
        return done.stdout


@dataclass(frozen=True, slots=True)
class Tree(Started):
    """A launch that is killed with everything that came of it."""

    place: ToolJob

    def kill(self) -> None:
        self.process.kill()
        for pid in self.place.survivors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def say_yes(job: ToolJob) -> None:
    """All that wait are answered with yes."""
    job.call("answer", "job", "--all", "--yes")


class ToolCalls(Scenario):
    """An agent over texts. `answer` is called when nothing is left to do but to answer questions."""

    def __init__(
        self,
        source: Path,
        name: str,
        texts: Sequence[str],
        *,
        head: str = "",
        concurrency: int = CONCURRENCY,
        answer: Answer | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._given: dict[str, Any] = {"source": source, "name_in_source": name, "texts": texts, "head": head}
        self._concurrency, self._answer, self._seconds = concurrency, answer, seconds
        self.exits = self.ends = (0, 3) if answer else (0,)
        self._closing = ExitStack()
        self._job: ToolJob
        self._model: ToolModel
        self._ended = 0
        self.results = b""
        """Of an undisturbed run."""
        self.undisturbed = Repeats()
        self.counted = Repeats()
        """Of all runs that were killed."""

    @property
    def is_complete(self) -> bool:
        return self._job.is_finished

    def close(self) -> None:
        self._closing.close()

    def warm_up(self) -> None:
        self.begin(random.Random(0))
        while not self.is_complete:
            self.between(random.Random(0))
            self._ended = self._job.start().wait()
            if self._ended not in self.ends:
                raise Fault(f"an undisturbed launch ended with {self._ended}: {self._job.said[-3000:]}")
        self.results, self.undisturbed = self._job.results_path.read_bytes(), self._count()
        if self.undisturbed.repeated or self.undisturbed.in_flight:
            raise Fault(f"an undisturbed run made calls twice, so they cannot be told apart: {self.undisturbed}")

    def begin(self, chance: random.Random) -> None:
        # A model for each run: no request of an earlier one is taken for one of this.
        self.close()
        self._model = self._closing.enter_context(serve_tools(self._seconds))
        base = self._closing.enter_context(scratch())
        self._job = ToolJob(base / "work", concurrency=self._concurrency, url=self._model.url, **self._given)
        self._closing.callback(self._job.end)
        self._job.lay_out()
        self._ended = 0

    def between(self, chance: random.Random) -> None:
        if self._ended == 3 and self._answer:
            self._answer(self._job)

    def start(self, chance: random.Random) -> Launched:
        return Tree(self._job.start(), self._job)

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        wanted = self._made() + chance.randint(1, self.undisturbed.calls // 2)
        launched.reaches(lambda: self._made() >= wanted, "calls")
        time.sleep(chance.uniform(0, self._seconds))

    def check(self, ended: int) -> None:
        self._ended = ended
        eventually(lambda: not self._job.survivors(), "nothing is left of the launch")
        # What the launch had sent is read, so that none of it is taken for a request of the next one.
        eventually(lambda: not self._model.connections, "the connections are closed")

    def check_complete(self) -> None:
        self._job.check_words()
        found = self._job.results_path.read_bytes()
        if found != self.results:
            raise Fault(f"the results are not those of an undisturbed run: {found[:300]!r}, not {self.results[:300]!r}")
        self.counted += self._count()

    def report(self) -> dict[str, Any]:
        counted = self.counted
        return {
            "calls_of_a_run": self.undisturbed.calls,
            "calls": counted.calls,
            "repeated": counted.repeated,
            "repeated_model_calls": counted.repeated_model_calls,
            "repeated_tool_calls": counted.repeated_tool_calls,
            "in_flight_again": counted.in_flight,
        }

    def _count(self) -> Repeats:
        return count_repeats(self._model.calls, read_tools_log(self._job.base))

    def _made(self) -> int:
        try:
            ended = (self._job.base / TOOLS_LOG).read_bytes().count(b"\n")
        except FileNotFoundError:
            ended = 0
        return ended + len(self._model.answered())


def make(*, framework: str, way: str = "ours", items: int = ITEMS) -> ToolCalls:
    source = JOBS / framework / FILES[framework]
    return ToolCalls(source, WAYS[framework][way], [f"What of key={number:02}?" for number in range(items)])

"""Messages between the runner and its agents, disturbed on the real socket or pipe of each executor.

    PYTHONPATH=tests python -m crash.wires worker --kinds swapped --faults 100 --seed 7

Each agent does the same: it reports progress, makes two steps, reports what it used, and returns its item's key, a
token of this attempt, and the two results. Before that it writes down each of these, in a file of its item. That file
is the evidence: a result that is not in it is another's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import agentrun
from agentrun.agents.agent import Agent, load_agent
from agentrun.checkpoint.record import Record
from agentrun.events import Event, Settled
from agentrun.executors.port import Executor
from agentrun.executors.prints import capture_prints
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.launch.launch import Launch
from agentrun.store.folder.store import FolderStore
from crash.faulty import KINDS, TIMEOUT_SECONDS, Faults
from crash.workload import scratch
from waiting import eventually

ITEMS, CONCURRENCY = 60, 20
SHARE = 0.06
"""Of the messages that are struck: an attempt has about ten."""
SHARES = {"swapped": 0.03}
"""A swap strikes two attempts."""

Call = Callable[[dict[str, Any]], dict[str, Any]]


def note(base: Path, key: str, *words: str) -> None:
    """Write down what happened in an attempt, whatever becomes of it."""
    fd = os.open(base / "said" / key, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, (" ".join(words) + "\n").encode())
    os.close(fd)


AGENT = """
import sys
sys.path[:0] = {path!r}
from crash import wires

def agent(item, ctx):
    return wires.work_with(ctx, item.key, kind={kind!r})
"""


def work_with(ctx: Any, key: str, *, kind: str) -> list[str]:
    """What an agent in Python does."""
    base = Path.cwd()
    token = secrets.token_hex(8)
    if kind == "forked" and secrets.randbelow(2):
        note(base, key, "forks")
        _fork(ctx)

    def make(name: str) -> str:
        made = f"{name}-{secrets.token_hex(8)}"
        note(base, key, "makes", made)
        return made

    ctx.progress(token)
    first, second = ctx.step("first", make, "first"), ctx.step("second", make, "second")
    if ctx.attempt == 1 and is_twice(key):
        raise agentrun.Retry("once more, with the steps that are known")
    note(base, key, "uses")
    ctx.usage(cost=1)
    note(base, key, "returns", token, first, second)
    return [key, token, first, second]


class _Left(Exception):
    pass


def _fork(ctx: Any) -> None:
    """Fork a child that comes back in some way, and wait for it."""
    if secrets.randbelow(2) or threading.active_count() > 1:
        child = os.fork()
    else:  # of which Python does not know
        import ctypes

        child = ctypes.PyDLL(None).fork()
    if child:
        ended = False

        def has_ended() -> bool:
            nonlocal ended
            ended = ended or os.waitpid(child, os.WNOHANG)[0] == child
            return ended

        eventually(has_ended, "the end of a forked child")
        return
    match secrets.randbelow(4):
        case 0:
            raise _Left("in the child")
        case 1:
            sys.exit(3)
        case 2:
            ctx.usage(cost=1000)
        case _:
            ctx.progress("of the child")


def is_twice(key: str) -> bool:
    """Half of the items fail once when they have made their steps, so that the next attempt is told of them."""
    return int(key[1:]) % 2 == 1


def work_by(call: Call, base: Path, key: str, attempt: int, *, serves: bool) -> list[str] | None:
    """The same for an agent in another language; None for a failure."""
    token = secrets.token_hex(8)

    def step(name: str) -> str:
        known = call({"type": "step_get", "name": name})
        if known["found"]:
            return str(known["value"] if "value" in known else json.loads(known["output"]))
        made = f"{name}-{secrets.token_hex(8)}"
        note(base, key, "makes", made)
        put = {"value": made} if serves else {"n": known["n"], "output": json.dumps(made)}
        call({"type": "step_put", "name": name, **put})
        return made

    call({"type": "progress", "text": token})
    first, second = step("first"), step("second")
    if attempt == 1 and is_twice(key):
        return None
    note(base, key, "uses")
    call({"type": "usage", "cost": 1})
    note(base, key, "returns", token, first, second)
    return [key, token, first, second]


@dataclass(slots=True)
class Setup:
    """One launch: its job, its faults, and what is found wrong while it runs."""

    base: Path
    job: Job
    agent: Agent
    faults: Faults
    wrong: list[str] = field(default_factory=list)
    _settled: dict[str, threading.Event] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.base / "state" / "job"

    def watch(self, event: Event) -> None:
        if isinstance(event, Settled):
            self.settled(event.key).set()

    def settled(self, key: str) -> threading.Event:
        """Set when the item is settled, and that is on disk."""
        return self._settled.setdefault(key, threading.Event())


Boundary = Callable[[Setup], Any]
"""A context manager that gives the executor, with the faults in its way."""


@dataclass(slots=True)
class Findings:
    """What the launches with one kind of fault showed."""

    faults: int = 0
    items: int = 0
    done: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    """Of items that failed."""
    wrong: list[str] = field(default_factory=list)


def disturb(boundary: str, kind: str, *, faults: int, seed: int) -> Findings:
    """Launch again and again until so many faults have happened."""
    from crash.boundaries import BOUNDARIES

    findings = Findings()
    while findings.faults < faults and not findings.wrong:
        with scratch() as base:
            _launch(base, BOUNDARIES[boundary], boundary, Faults(kind, seed, share=SHARES.get(kind, SHARE)), findings)
        seed += 1000
    return findings


def _launch(base: Path, executor_of: Boundary, boundary: str, faults: Faults, findings: Findings) -> None:
    (base / "said").mkdir()
    (base / "items.txt").write_text("".join(f"k{n:04}\n" for n in range(ITEMS)))
    name = f"agent_{secrets.token_hex(4)}"
    (base / f"{name}.py").write_text(AGENT.format(path=[str(Path(__file__).parents[1])], kind=faults.kind))
    values: dict[str, Any] = {"agent": f"{name}.py:agent"}
    if boundary == "thread":
        values["isolation"] = "thread"
    elif boundary in ("program", "serve"):
        values = {"agent": None, "command": ("sh", "program.sh"), "serve": boundary == "serve", "parse": "json"}
        (base / "program.sh").write_text("")
    job = Job(
        name="job",
        base=base,
        items=ItemsSpec(kind="lines", pattern="items.txt"),
        params={},
        output="results.jsonl",
        concurrency=CONCURRENCY,
        timeout_seconds=TIMEOUT_SECONDS,
        stop_after_failures=0,
        **values,
    )
    with chdir(base), _import_paths():
        setup = Setup(base, job, load_agent(job), faults)
        exit_code, records = asyncio.run(_run(setup, executor_of))
    findings.faults += faults.count
    findings.items += ITEMS
    findings.wrong += setup.wrong
    _check(base, exit_code, records, findings)


@contextmanager
def _import_paths() -> Iterator[None]:
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


async def _run(setup: Setup, executor_of: Boundary) -> tuple[int, list[Record]]:
    store = FolderStore(setup.folder)
    options = Options(wait_seconds=0.0)
    launch = Launch(setup.job, store, agent="v1", options=options, watcher=setup.watch, sleep=_no_sleep)
    assert launch.prepare() is None
    executor: Executor
    try:
        with capture_prints(), executor_of(setup) as executor:
            try:
                summary = await launch.work(executor)
            finally:
                await executor.close()
        reader = store.reader()
        return summary.exit_code, [record for _, record in reader.scan()]
    finally:
        launch.close()


async def _no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


def _check(base: Path, exit_code: int, records: list[Record], findings: Findings) -> None:
    ended = {record.key: record for record in records if record.kind in ("done", "failed")}
    done = {key: record for key, record in ended.items() if record.kind == "done"}
    findings.done += len(done)
    if (exit_code == 0) != (len(done) == ITEMS) or len(ended) != ITEMS:
        findings.wrong.append(f"exit {exit_code}, with {len(done)} of {ITEMS} done and {len(ended)} ended")
    for key, record in ended.items():
        if record.error is not None:
            cause = record.error.cause[:80]
            findings.causes[cause] = findings.causes.get(cause, 0) + 1
        file = base / "said" / key
        said = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        findings.faults += said.count(["forks"])
        # The attempt that was done has reported; of the others a report may have been lost.
        reports, cost = said.count(["uses"]), record.usage.cost or 0 if record.usage is not None else 0
        if not (record.kind == "done") <= cost <= reports:
            findings.wrong.append(f"{key} is {record.kind} and was charged {cost}, with {reports} reports of 1")
        if record.kind != "done":
            continue
        output = json.loads(bytes(record.output or b"null"))
        if output[:1] != [key] or ["returns", *output[1:]] not in said:
            findings.wrong.append(f"{key} has the output {output}; it said {said}")
        made = [words[1] for words in said if words[0] == "makes"]
        if not set(output[2:]) <= set(made):
            findings.wrong.append(f"{key} has the steps {output[2:]}, but made {made}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="crash.wires", description=__doc__)
    parser.add_argument("boundary")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--faults", type=int, default=100, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # of forks where there are threads
    found = {
        kind: disturb(asked.boundary, kind, faults=asked.faults, seed=asked.seed) for kind in asked.kinds.split(",")
    }
    print(json.dumps({kind: asdict(one) for kind, one in found.items()}), flush=True)
    # Threads of agents whose runner has gone may still be waiting.
    os._exit(0)


if __name__ == "__main__":
    main()

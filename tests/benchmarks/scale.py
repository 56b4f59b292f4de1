"""How far does one runner reach? A real launch on a simulated cluster, by default 10,000,000 items on 1,000 slots.

    make scale                              (or: PYTHONPATH=tests .venv/bin/python -m benchmarks.scale)
    make scale ITEMS=20000 SLOTS=100        does it work, and roughly where is it?

Launch, slots, committer, ledger, folder store, source, results, and the executor for clusters with a link to every
host are the real ones, in a process of their own. Only the hosts are played: they answer the real frames with 200 bytes
after a random time. Each slot is on a machine of its own, which is the most machines that so many slots can have. The
played hosts share the runner's process, so that their CPU time counts as the runner's. The table goes to standard
output, progress to standard error. CPU time is what to compare: wall time depends on who else uses the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentrun.agents.agent import load_agent
from agentrun.agents.attempt import Ended, Outcome
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary
from agentrun.events import Began, Event, Settled
from agentrun.executors.cluster.executor import ClusterExecutor
from agentrun.executors.cluster.fence import facts
from agentrun.executors.cluster.frames import make_frame
from agentrun.executors.cluster.lanes import URGENT, Incoming, Outgoing
from agentrun.executors.cluster.lease import PINGS_PER_LEASE
from agentrun.executors.cluster.port import HostSpec
from agentrun.executors.port import Setting
from agentrun.job.engine import EngineSpec
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.launch import Launch
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import Sync
from agentrun_cli import loop
from benchmarks.arena import JOB, TESTS
from benchmarks.contenders.probe import io_counters
from benchmarks.flat import Largest
from benchmarks.machine import describe
from benchmarks.table import as_bytes, as_ratio, markdown
from benchmarks.work import TENTHS, peak_memory_bytes, produce, write_items

TICK_SECONDS = 0.005
"""How often the played hosts say what is due."""


class PlayedHost:
    """A tube to a host with one slot that exists only here. It does one attempt after another."""

    slots = 1

    def __init__(self, number: int, cluster: PlayedCluster) -> None:
        self.where = f"tcp://10.0.{number // 250}.{number % 250 + 1}:{40000 + number}"
        self.free_at = 0.0
        self._cluster = cluster
        self._incoming, self._outgoing = Incoming(), Outgoing()
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._facts = facts() | {"place": f"{number:08x}-5f0e-4c3b-9d2a-7b1c6e4f8a90/4026531836"}

    def say(self, kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> None:
        self._cluster.heard += 1
        self._put(make_frame(kind, parts, **fields), is_urgent=kind in URGENT)

    def _put(self, frame: bytes, *, is_urgent: bool) -> None:
        self._outgoing.put(frame, is_urgent=is_urgent)
        while data := self._outgoing.take():
            self._said.put_nowait(data)

    def come_up(self) -> None:
        self.say("up", facts=self._facts, mark=self.where, sight=self._facts["place"], scratch="")

    async def send(self, data: bytes) -> None:
        for frame in self._incoming.feed(data):
            self._cluster.sent += 1
            if frame.type == "attempt":
                self._cluster.begin(self, frame.value["id"], frame.value["attempt"]["item"]["data"])
            elif frame.type == "hello":
                self.say("ready", sees_folder=self._cluster.sees_folder)
            elif frame.type == "taken":
                self._outgoing.acknowledge(frame.value["size"])
            elif frame.type == "close":
                self._said.put_nowait(b"")
        if acknowledgement := self._incoming.acknowledgement():
            self._put(acknowledgement, is_urgent=True)

    async def receive(self) -> bytes:
        return await self._said.get()

    async def close(self) -> None:
        pass


class PlayedCluster:
    """An engine with `slots` hosts. An attempt takes `seconds` there on the average, from half of that to half more."""

    name = "played"

    def __init__(self, slots: int, *, seconds: float, sees_folder: bool = True) -> None:
        self.sees_folder = sees_folder
        self.heard = self.sent = 0
        """Frames from hosts and to them."""
        self._slots, self._seconds = slots, seconds
        self._random = random.Random(7)
        self._due: list[tuple[float, int, PlayedHost, str, bytes, float]] = []
        self._begun = 0
        self._ticking: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        pass

    def caution(self, *, has_secrets: bool) -> str:
        return ""

    async def everywhere(self, function: Callable[..., Any], *args: Any) -> Mapping[str, Any]:
        return {}

    async def tubes(self, wanted: int, spec: HostSpec, changed: Callable[[], None]) -> AsyncIterator[PlayedHost]:
        hosts = [PlayedHost(number, self) for number in range(self._slots)]
        self._ticking = asyncio.ensure_future(self._tick(hosts, spec.lease_seconds / PINGS_PER_LEASE))
        for host in hosts:
            host.come_up()
            yield host

    def begin(self, host: PlayedHost, attempt_id: str, data: dict[str, Any]) -> None:
        """The host has an attempt, and does it when it is done with those before."""
        seconds = self._seconds * (0.5 + self._random.random())
        host.free_at = max(time.monotonic(), host.free_at) + seconds
        self._begun += 1
        output = json.dumps(produce(data)).encode()
        heapq.heappush(self._due, (host.free_at, self._begun, host, attempt_id, output, seconds))

    async def _tick(self, hosts: Sequence[PlayedHost], ping_seconds: float) -> None:
        """All hosts at once: a timer for each would cost the runner's process more than the runner does."""
        pings = [(time.monotonic() + ping_seconds * n / len(hosts), n, 1) for n in range(len(hosts))]
        for host in hosts:
            host.say("ping", n=0)
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, host, attempt_id, output, seconds = heapq.heappop(self._due)
                ended = Ended.of(Outcome("done"), attempt_id=attempt_id, no=0, ends=False).as_json()
                host.say("outcome", {"output": output}, id=attempt_id, ended=ended, seconds=seconds)
            while pings[0][0] <= now:
                at, n, count = pings[0]
                hosts[n].say("ping", n=count)
                heapq.heapreplace(pings, (at + ping_seconds, n, count + 1))

    async def describe(self) -> str:
        return f"{self._slots} slots"

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()


class CountedStore(FolderStore):
    """The folder store; it counts its commits."""

    commits = 0

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        self.commits += 1
        return super().begin(checkpoint, records)


# ---- in the runner's process


@dataclass(frozen=True)
class Sample:
    """What the runner had used when so many items were settled."""

    settled: int
    wall: float
    cpu: float
    written: int
    """Bytes handed to write(2), to whatever file."""
    commits: int
    messages: int
    peak: int


def run(folder: Path, *, items: int, slots: int, seconds: float, sees_folder: bool) -> dict[str, Any]:
    """One launch over items.jsonl in the folder, with a sample when it begins, at each tenth, and when it has ended."""
    job = Job(
        name=JOB,
        base=folder,
        items=ItemsSpec(kind="jsonl", pattern="items.jsonl", key="id"),
        command=("true",),
        params={},
        output="results.jsonl",
        concurrency=slots,
        engine=EngineSpec(on="dask://10.0.0.1:8786", kind="dask"),
    )
    store = CountedStore(folder / ".agentrun" / JOB)
    cluster = PlayedCluster(slots, seconds=seconds, sees_folder=sees_folder)
    samples: list[Sample] = []
    settled, tenth = 0, max(1, items // TENTHS)

    def sample() -> None:
        messages, written = cluster.heard + cluster.sent, io_counters().get("wchar", 0)
        now, cpu, peak = time.monotonic(), time.process_time(), peak_memory_bytes()
        samples.append(Sample(settled, now, cpu, written, store.commits, messages, peak))
        print(f"    {settled:,} settled", file=sys.stderr, flush=True)

    def watch(event: Event) -> None:
        nonlocal settled
        if isinstance(event, Settled):
            settled += 1
            if settled % tenth == 0:
                sample()
        elif isinstance(event, Began):
            sample()

    async def main() -> Summary:
        executor = ClusterExecutor(job, load_agent(job), Setting(None, {}, store.folder), cluster)
        try:
            return await launch.work(executor)
        finally:
            await executor.close()

    began, began_cpu = time.monotonic(), time.process_time()
    launch = Launch(job, store, agent="scale", watcher=watch)
    try:
        nothing_to_do = launch.prepare()
        assert nothing_to_do is None
        summary = loop.run(main)
    finally:
        launch.close()
    sample()
    assert summary.exit_code == 0 and summary.counts["done"] == items, summary
    return {"began": began, "began_cpu": began_cpu, "samples": [vars(one) for one in samples]}


# ---- the table


def measure(home: Path, *, items: int, slots: int, seconds: float, sees_folder: bool) -> str:
    """The table of one run, in a folder of its own below `home`, which is removed."""
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=home))
    try:
        print(f"writing {items:,} items", file=sys.stderr, flush=True)
        write_items(folder / "items.jsonl", items)
        head = "\n".join(f"- {line}" for line in describe(folder))
        words = [f"--items={items}", f"--slots={slots}", f"--seconds={seconds}", f"--runner={folder}"]
        argv = [sys.executable, "-m", "benchmarks.scale", *words, *([] if sees_folder else ["--apart"])]
        environ = {**os.environ, "PYTHONPATH": str(TESTS), "XDG_STATE_HOME": str(folder)}
        with Largest(folder / ".agentrun" / JOB / "state.json") as largest:
            subprocess.run(argv, cwd=folder, env=environ, stdin=subprocess.DEVNULL, check=True)
        report = json.loads((folder / "report.json").read_text())
        sizes = {
            "state": largest.bytes,
            "results": (folder / "results.jsonl").stat().st_size,
            "journal": sum(one.stat().st_size for one in (folder / ".agentrun" / JOB / "runs").glob("*.jsonl")),
        }
        return f"{head}\n\n{table(report, sizes, items=items, slots=slots, seconds=seconds)}\n"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(report: Mapping[str, Any], sizes: Mapping[str, int], *, items: int, slots: int, seconds: float) -> str:
    samples = [Sample(**one) for one in report["samples"]]
    *during, end = samples
    start, last = during[0], during[-1]
    tenths = [(later.cpu - one.cpu) / (later.settled - one.settled) * 1e6 for one, later in pairwise(during)]
    wall, cpu = last.wall - start.wall, last.cpu - start.cpu
    commits, written = last.commits - start.commits, last.written - start.written
    ratio = tenths[-1] / tenths[0]
    rows = [
        ("items/s sustained", f"{items / wall:,.0f}", f"the slots alone could do {slots / seconds:,.0f}"),
        ("items/s of one core", f"{items / cpu:,.0f}", f"{cpu / items * 1e6:.0f} µs of CPU an item"),
        ("CPU time per item, first tenth", f"{tenths[0]:.0f} µs", ""),
        ("CPU time per item, last tenth", f"{tenths[-1]:.0f} µs", " ".join(f"{one:.0f}" for one in tenths)),
        ("last tenth / first tenth", as_ratio(ratio), f"≤ 1.15: {_verdict(ratio <= 1.15)}"),
        ("peak memory of the runner", as_bytes(end.peak), f"≤ 1 GB: {_verdict(end.peak <= 1e9)}"),
        ("of that, when the first item started", as_bytes(start.peak), f"{end.peak / items:.0f} B an item at the end"),
        ("largest state.json", as_bytes(sizes["state"]), f"{sizes['state'] / slots:.0f} B a slot"),
        ("checkpoints/s", f"{commits / wall:,.1f}", f"{items / commits:,.0f} items each"),
        ("bytes written per item", as_bytes(written / items), f"{as_bytes(written / wall)}/s"),
        ("of these, journal", as_bytes(sizes["journal"] / items), f"{as_bytes(sizes['journal'])} in all"),
        ("messages/s, both ways", f"{(last.messages - start.messages) / wall:,.0f}", _per_item(start, last, items)),
        ("first pass over the source", _seconds(start.wall - report["began"]), _cpu(start.cpu - report["began_cpu"])),
        ("last pass, and the results", _seconds(end.wall - last.wall), _cpu(end.cpu - last.cpu)),
        ("results.jsonl", as_bytes(sizes["results"]), ""),
    ]
    return markdown([(f"{items:,} items, {slots:,} slots", "measured", ""), *rows])


def _verdict(is_reached: bool) -> str:
    return "ok" if is_reached else "**not reached**"


def _per_item(start: Sample, last: Sample, items: int) -> str:
    return f"{(last.messages - start.messages) / items:.2f} an item"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _cpu(seconds: float) -> str:
    return f"{seconds:.1f} s of CPU"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--slots", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=0.1, help="how long an attempt takes on the average")
    parser.add_argument("--apart", action="store_true", help="the hosts do not see the job's folder")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; some 0.8 KB an item is needed there")
    parser.add_argument("--runner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    given = {"items": options.items, "slots": options.slots, "seconds": options.seconds}
    if options.runner is not None:
        report = run(options.runner, sees_folder=not options.apart, **given)
        (options.runner / "report.json").write_text(json.dumps(report))
        return
    home = options.folder or Path(tempfile.gettempdir())
    home.mkdir(parents=True, exist_ok=True)
    print(measure(home, sees_folder=not options.apart, **given), end="")


if __name__ == "__main__":
    main()

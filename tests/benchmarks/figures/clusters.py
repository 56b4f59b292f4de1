"""Items on a cluster beside the cluster's own rate, in the same run and on the same workers: `Client.map` of Dask, and
`ActorPool` of Ray.

The rate is that of the items themselves, from the beginning of the first to the end of the last: what it takes to start
hosts and their workers is not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from benchmarks.arena import AGENTRUN, MOST_SECONDS, TESTS, Spoiled
from benchmarks.bench import OURS, Bench
from benchmarks.contenders.naps import SECONDS
from benchmarks.table import Row, as_rate, ratios
from cluster.dask_servers import DaskServers
from cluster.network import Network, check_networks

WORKERS, THREADS = 2, 4
SLOTS = WORKERS * THREADS
SHARE = 0.90
RUN_IN = 10 * SLOTS
"""Items at the beginning that do not count: hosts and their workers load the agent meanwhile."""


class Start(Protocol):
    """Starts a command where it reaches the cluster; both its streams go to `log`."""

    def __call__(self, *command: str, cwd: Path, log: IO[str]) -> subprocess.Popen[str]: ...


@dataclass(frozen=True)
class Cluster:
    """One that is there, with eight slots."""

    kind: str
    on: str
    """For `[engine] on`."""
    address: str
    """For its own clients."""
    start: Start


def clusters(bench: Bench) -> list[Row]:
    return [_row(bench, "Dask", "`Client.map`", _dask), _on_ray(bench)]


def _on_ray(bench: Bench) -> Row:
    try:
        check_networks()
    except AssertionError as error:
        return Row("items on Ray", note=str(error))
    return _row(bench, "Ray", "`ActorPool`", _ray)


@contextmanager
def _dask() -> Iterator[Cluster]:
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}

    def start(*command: str, cwd: Path, log: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=cwd, env=environ, stdout=log, stderr=log, text=True)

    with (
        tempfile.TemporaryDirectory(prefix="agentrun-bench-") as folder,
        DaskServers(Path(folder), workers=WORKERS, threads=THREADS, environ=environ) as servers,
    ):
        yield Cluster("dask", f"dask:{servers.file}", str(servers.file), start)


@contextmanager
def _ray() -> Iterator[Cluster]:
    """In a network namespace of its own."""
    with Network() as network:
        network.start_head("--num-cpus", str(SLOTS))
        start = partial(network.start, environ={"PYTHONPATH": str(TESTS)})
        yield Cluster("ray", "ray:127.0.0.1:6379", "127.0.0.1:6379", start)


def _row(bench: Bench, name: str, way: str, up: Callable[[], AbstractContextManager[Cluster]]) -> Row:
    total = bench.sizes.workers
    with up() as cluster:
        ways = {OURS: partial(_ours, bench, cluster, total), way: partial(_theirs, bench, cluster, total)}
        race = bench.race(ways, rounds=bench.sizes.rounds_of_long)
    ours, theirs = (race.spread(one, lambda rate: rate, as_rate) for one in (OURS, way))
    share = ratios(ours.values, theirs.values)
    what = f"{total} items of {SECONDS * 1000:g} ms, {SLOTS} slots on {name}"
    return Row(what, ours, way, theirs, share, f"≥ {SHARE}", share.middle >= SHARE)


def _ours(bench: Bench, cluster: Cluster, total: int) -> float:
    place = bench.arena.place()
    agent = os.path.relpath(TESTS / "benchmarks" / "contenders" / "naps.py", place)
    (place / "items.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(total + RUN_IN)))
    (place / "job.toml").write_text(
        f'name = "naps"\nagent = "{agent}:nap"\noutput = "naps.jsonl"\n[items]\njsonl = "items.jsonl"\n'
        f'[run]\nconcurrency = {SLOTS}\n[engine]\non = "{cluster.on}"\n'
    )
    try:
        _finish(cluster, place, AGENTRUN, "start", "job.toml", "-q")
        lines = (place / "naps.jsonl").read_text().splitlines()
        return _rate(sorted(json.loads(line)["output"] for line in lines)[RUN_IN:], total)
    finally:
        bench.arena.leave(place)


def _theirs(bench: Bench, cluster: Cluster, total: int) -> float:
    place = bench.arena.place()
    module = ("-m", "benchmarks.contenders.naps")
    try:
        found = _finish(cluster, place, sys.executable, *module, cluster.kind, cluster.address, str(total))
        return _rate(json.loads(found.splitlines()[-1]), total)
    finally:
        bench.arena.leave(place)


def _finish(cluster: Cluster, place: Path, *command: str) -> str:
    """What it has printed."""
    with tempfile.TemporaryFile("w+") as log:
        process = cluster.start(*command, cwd=place, log=log)
        try:
            code = process.wait(MOST_SECONDS)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        printed = log.read()
    if code:
        raise Spoiled(f"{Path(command[0]).name} {' '.join(command[1:4])}: exit {code}: {printed[-300:]}")
    return printed


def _rate(times: Sequence[Sequence[float]], total: int) -> float:
    if len(times) != total:
        raise Spoiled(f"{len(times)} of {total} items")
    return total / (max(ended for _, ended in times) - min(began for began, _ in times))

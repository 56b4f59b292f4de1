"""Items on a Dask cluster beside the cluster's own rate, `Client.map`, in the same run and on the same workers.

The rate is that of the items themselves, from the beginning of the first to the end of the last: what it takes to start
hosts and their workers is not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.arena import AGENTRUN, TESTS, Spoiled
from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, as_rate, ratios
from cluster.dask_servers import DaskServers

DASK = "Client.map"
WORKERS, THREADS = 2, 4
SHARE = 0.90
RUN_IN = 80
"""Items at the beginning that do not count: hosts and their workers load the agent meanwhile."""


def clusters(bench: Bench) -> list[Row]:
    total = bench.sizes.workers
    with tempfile.TemporaryDirectory(prefix="agentrun-bench-") as folder:
        environ = {**os.environ, "PYTHONPATH": str(TESTS)}
        with DaskServers(Path(folder), workers=WORKERS, threads=THREADS, environ=environ) as servers:
            ways = {OURS: partial(_ours, bench, servers.file, total), DASK: partial(_theirs, servers.file, total)}
            race = bench.race(ways, rounds=bench.sizes.rounds_of_long)
    ours, theirs = (race.spread(way, lambda rate: rate, as_rate) for way in (OURS, DASK))
    share = ratios(ours.values, theirs.values)
    what = f"{total} items of 100 ms, {WORKERS * THREADS} slots on Dask"
    return [Row(what, ours, "`Client.map`", theirs, share, f"≥ {SHARE}", share.middle >= SHARE)]


def _ours(bench: Bench, scheduler_file: Path, total: int) -> float:
    place = bench.arena.place()
    agent = os.path.relpath(TESTS / "benchmarks" / "contenders" / "dask_naps.py", place)
    (place / "items.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(total + RUN_IN)))
    (place / "job.toml").write_text(
        f'name = "naps"\nagent = "{agent}:nap"\noutput = "naps.jsonl"\n[items]\njsonl = "items.jsonl"\n'
        f'[run]\nconcurrency = {WORKERS * THREADS}\n[engine]\non = "dask:{scheduler_file}"\n'
    )
    try:
        subprocess.run([AGENTRUN, "start", "job.toml", "-q"], cwd=place, check=True)
        lines = (place / "naps.jsonl").read_text().splitlines()
        return _rate(sorted(json.loads(line)["output"] for line in lines)[RUN_IN:], total)
    except subprocess.CalledProcessError as error:
        raise Spoiled(f"agentrun: exit {error.returncode}") from error
    finally:
        bench.arena.leave(place)


def _theirs(scheduler_file: Path, total: int) -> float:
    command = [sys.executable, "-m", "benchmarks.contenders.dask_naps", str(scheduler_file), str(total)]
    found = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(TESTS)})
    if found.returncode:
        raise Spoiled(f"Client.map: {found.stderr.decode()[-200:]}")
    return _rate(json.loads(found.stdout), total)


def _rate(times: list[list[float]], total: int) -> float:
    if len(times) != total:
        raise Spoiled(f"{len(times)} of {total} items")
    return total / (max(ended for _, ended in times) - min(began for began, _ in times))

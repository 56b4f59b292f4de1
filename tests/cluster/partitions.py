"""A network that is cut in the middle of a run, and heals, for less and for longer than the lease.

    PYTHONPATH=tests python -m cluster.partitions --seed 7 [--runs 5]

Two network namespaces, joined by a cable (veth): on the one side the runner, Dask's scheduler and a worker, on the
other side another worker. Both see the same files, so that the evidence of `evidence.py` is not cut. It needs root.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cli.conftest import environment
from cluster.dask_servers import DaskServers
from cluster.evidence import EvidentJob
from cluster.network import Network, check_networks
from waiting import eventually, happens_before_exit

LEASE_SECONDS = 4
ITEMS, NAP_SECONDS = 120, 0.25
CUTS = 4
NEAR, FAR = "10.1.2.1", "10.1.2.2"


class Cable:
    """Between two network namespaces; it can be cut, and repaired."""

    def __init__(self) -> None:
        self.near, self.far = Network("ip link set lo up"), Network("ip link set lo up")
        self._stack = ExitStack()

    def __enter__(self) -> Cable:
        with ExitStack() as stack:
            stack.enter_context(self.near)
            stack.enter_context(self.far)
            peer = ("peer", "name", "cable", "netns", str(self.far.keeper))
            self._do(self.near, "ip", "link", "add", "cable", "type", "veth", *peer)
            for network, address in ((self.near, NEAR), (self.far, FAR)):
                self._do(network, "ip", "addr", "add", f"{address}/24", "dev", "cable")
                self._do(network, "ip", "link", "set", "cable", "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def cut(self) -> None:
        """Packets are lost, and nobody is told."""
        self._do(self.near, "ip", "link", "set", "cable", "down")

    def repair(self) -> None:
        self._do(self.near, "ip", "link", "set", "cable", "up")

    def _do(self, network: Network, *command: str) -> None:
        subprocess.run([*network.entering, *command], check=True)


def run_cut(seed: int) -> str:
    """One run with cuts at moments and of lengths that the seed chooses; how many there were."""
    chance = random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="agentrun-cuts-") as place,
        Cable() as cable,
        DaskServers(
            Path(place), environ=environment(XDG_STATE_HOME=place), host=NEAR, prefix=cable.near.entering
        ) as servers,
    ):
        servers.start_worker("near", host=NEAR, prefix=cable.near.entering, WORKER="near")
        servers.start_worker("far", host=FAR, prefix=cable.far.entering, WORKER="far")
        servers.await_worker("near")
        servers.await_worker("far")
        job = EvidentJob(
            Path(place, "job"),
            on=f"dask:{servers.file}",
            items=ITEMS,
            concurrency=4,
            lease=f"{LEASE_SECONDS}s",
            nap_seconds=NAP_SECONDS,
        )
        log = Path(place, "launch.log")
        with open(log, "w") as told:
            launch = cable.near.agentrun("start", "job.toml", cwd=job.folder, log=told, XDG_STATE_HOME=place)
        try:
            return _cut_again_and_again(chance, cable, job, launch)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()}") from error
        finally:
            launch.kill()
            launch.wait()


def _cut_again_and_again(chance: random.Random, cable: Cable, job: EvidentJob, launch: subprocess.Popen[str]) -> str:
    long_ones = 0
    for number in range(CUTS):
        # The far worker is at work before each cut: what was cut off comes back.
        before = len(job.begun("far"))
        works = happens_before_exit(launch, lambda: len(job.begun("far")) > before, "the far worker is at work")  # noqa: B023
        assert works, f"the run was over before cut {number + 1}"
        is_long = number % 2 == 1
        long_ones += is_long
        seconds = LEASE_SECONDS * (1.5 + chance.random() if is_long else 0.5 * chance.random())
        time.sleep(chance.random())
        cable.cut()
        time.sleep(seconds)
        job.check_faults()
        cable.repair()
    eventually(lambda: launch.poll() is not None, "the launch ends")
    assert launch.returncode == 0, f"exit {launch.returncode}"
    job.check()
    again = len(job.begun()) - ITEMS
    assert again >= 1, "no item was lost with its machine: the cuts did nothing"
    return f"{CUTS} cuts, {long_ones} longer than the lease; {again} attempts were lost"


def long(chance: random.Random, minutes: float) -> tuple[int, int]:
    """For the long tests: how many runs there were, and how many failed."""
    check_networks()
    tried = failed = 0
    until = time.monotonic() + minutes * 60
    while not tried or time.monotonic() < until:
        seed = chance.randrange(1_000_000)
        tried += 1
        try:
            run_cut(seed)
        except AssertionError as error:
            failed += 1
            print(f"partitions, seed {seed}: {error}", flush=True)
    return tried, failed


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    asked: Any = parser.parse_args(given)
    check_networks()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        began = time.monotonic()
        try:
            found = run_cut(seed)
        except AssertionError as error:
            failed += 1
            found = f"WRONG: {error}"
        print(f"seed {seed}: {found}, in {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(f"{failed} of {asked.runs} runs were wrong" if failed else 0)


if __name__ == "__main__":
    main()

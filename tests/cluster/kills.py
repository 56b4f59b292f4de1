"""Workers and runners of a job on a cluster, killed with SIGKILL again and again.

    PYTHONPATH=tests python -m cluster.kills --seed 7 [--runs 20] [--on ray] [--items 150] [--slots 5] [--runners 3]

On Dask a kill is that of a worker's process; on Ray, that of an actor's process, of the host beside it, or of both at
once. The cluster outlives the runners. What must hold is in `evidence.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from agentrun.system.guardian import list_processes
from cli.conftest import COMMAND, environment
from cluster.dask_servers import DaskServers
from cluster.evidence import EvidentJob
from cluster.network import Network, check_networks
from waiting import eventually, happens_before, happens_before_exit

ENGINES = ("dask", "ray")
SLOTS = 4


class Cluster(Protocol):
    """A cluster of four slots that is there before the first launch, and after the last one. It ends with the block."""

    def __enter__(self) -> Cluster: ...

    def __exit__(self, *exc: object) -> None: ...

    @property
    def on(self) -> str:
        """For `[engine] on`."""
        ...

    def launch(self, folder: Path, log: Path) -> subprocess.Popen[Any]: ...

    def victims(self, chance: random.Random) -> Sequence[int]:
        """The processes of which one slot, or several, live, as the chance has it; empty if there are none."""
        ...

    def left(self) -> object:
        """What is left of the launches; nothing, before long."""
        ...


class DaskCluster:
    """A scheduler and two workers with two threads each, on loopback."""

    def __init__(self, folder: Path) -> None:
        self._environ = environment(XDG_STATE_HOME=str(folder))
        self._servers = DaskServers(folder, workers=2, threads=SLOTS // 2, environ=self._environ)
        self.on = f"dask:{self._servers.file}"

    def __enter__(self) -> DaskCluster:
        self._servers.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._servers.__exit__()

    def launch(self, folder: Path, log: Path) -> subprocess.Popen[Any]:
        with open(log, "a") as told:
            return subprocess.Popen(
                [COMMAND, "start", "job.toml", "-q"],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                env=self._environ,
                cwd=folder,
            )

    def victims(self, chance: random.Random) -> Sequence[int]:
        alive = self._servers.worker_processes()
        return [chance.choice(alive)] if alive else []

    def left(self) -> object:
        return self._servers.scratches()


class RayCluster:
    """A Ray of four CPUs on loopback, in a network namespace of its own."""

    on = "ray:127.0.0.1:6379"

    def __init__(self, folder: Path) -> None:
        self._environ = {"XDG_STATE_HOME": str(folder)}
        self._network = Network()
        self._servers: dict[int, str] = {}

    def __enter__(self) -> RayCluster:
        self._network.__enter__()
        try:
            self._network.start_head("--num-cpus", str(SLOTS))
            self._servers = self._find_servers()
            assert len(self._servers) == 2, self._servers
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._network.__exit__()

    def launch(self, folder: Path, log: Path) -> subprocess.Popen[Any]:
        with open(log, "a") as told:
            return self._network.agentrun("start", "job.toml", "-q", cwd=folder, log=told, **self._environ)

    def victims(self, chance: random.Random) -> Sequence[int]:
        parents = {one.pid: one.parent for one in list_processes().values()}
        hosts = self._network.processes(lambda command: "agentrun.executors.cluster.host" in command)
        # The actor, and the host that it started.
        pairs = [(parents[pid], pid) for pid in hosts if parents.get(pid) in self._find_slots()]
        if not pairs:
            return []
        actor, host = chance.choice(pairs)
        return chance.choice([[actor], [host], [actor, host]])

    def left(self) -> object:
        assert self._find_servers() == self._servers, "the cluster has not outlived the launches"
        return self._find_slots() or list(self._network.tmp.glob("agentrun-*"))

    def _find_slots(self) -> dict[int, str]:
        return self._network.processes(lambda command: "ray::Slot" in command)

    def _find_servers(self) -> dict[int, str]:
        programs = ("gcs/gcs_server", "raylet/raylet")
        return self._network.processes(lambda command: command.split()[0].endswith(programs))


class Killing:
    """One run of the job on a cluster, in a folder of its own, and the kills so far."""

    def __init__(self, folder: Path, cluster: Cluster, *, items: int) -> None:
        self._cluster = cluster
        self._job = EvidentJob(folder / "job", on=cluster.on, items=items, concurrency=SLOTS)
        self._items = items
        self._log = folder / "launches.log"
        self.slots_killed = self.runners_killed = 0
        self._launch = self._start()

    def _start(self) -> subprocess.Popen[Any]:
        return self._cluster.launch(self._job.folder, self._log)

    def run(self, chance: random.Random, *, slot_kills: int, runner_kills: int) -> None:
        """Run the job to its end, with so many kills spread over it."""
        kills = ["slot"] * slot_kills + ["runner"] * runner_kills
        chance.shuffle(kills)
        # What is left after the last of them is enough for it to be in time.
        moments = sorted(chance.randrange(1, self._items * 4 // 5) for _ in kills)
        try:
            for kind, moment in zip(kills, moments, strict=True):
                is_reached = partial(self._job.has_settled, moment)
                happens_before_exit(self._launch, is_reached, f"{moment} items are settled")
                time.sleep(chance.random() * 0.3)
                if kind == "slot":
                    self._kill_slot(chance)
                else:
                    self._kill_runner()
            eventually(lambda: self._launch.poll() is not None, "the last launch ends")
            assert self._launch.returncode == 0, f"exit {self._launch.returncode}"
            self._job.check()
            eventually(lambda: not self._cluster.left(), "nothing is left of the launches")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._log.read_text()}") from error
        finally:
            self._launch.kill()
            self._launch.wait()

    def _kill_slot(self, chance: random.Random) -> None:
        """Also the first that comes, where there is none at the moment."""
        found: list[int] = []

        def is_found() -> bool:
            found[:] = self._cluster.victims(chance)
            return bool(found)

        is_over = self._has_ended
        if happens_before(is_over, is_found, "a slot is there", pause_seconds=0.1):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.slots_killed += 1

    def _kill_runner(self) -> None:
        self.runners_killed += self._launch.poll() is None
        self._launch.kill()
        self._launch.wait()
        self._launch = self._start()

    def _has_ended(self) -> bool:
        return self._launch.poll() is not None


def run_killed(seed: int, *, items: int, slot_kills: int, runner_kills: int, on: str = "dask") -> str:
    """One run with kills at moments that the seed chooses; how many there were."""
    with tempfile.TemporaryDirectory(prefix="agentrun-kills-") as folder:
        cluster: Cluster = RayCluster(Path(folder)) if on == "ray" else DaskCluster(Path(folder))
        with cluster:
            killing = Killing(Path(folder), cluster, items=items)
            killing.run(random.Random(seed), slot_kills=slot_kills, runner_kills=runner_kills)
    return f"{killing.slots_killed} slots and {killing.runners_killed} runners killed"


def long(chance: random.Random, minutes: float, *, on: str = "dask", least: int = 20) -> tuple[int, int]:
    """For the long tests: how many runs there were, and how many failed; at least so many."""
    if on == "ray":
        check_networks()
    tried = failed = 0
    until = time.monotonic() + minutes * 60
    while tried < least or time.monotonic() < until:
        seed = chance.randrange(1_000_000)
        tried += 1
        try:
            run_killed(seed, items=150, slot_kills=5, runner_kills=3, on=on)
        except AssertionError as error:
            failed += 1
            print(f"{on}, seed {seed}: {error}", flush=True)
    return tried, failed


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=ENGINES, default="dask")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--items", type=int, default=150)
    parser.add_argument("--slots", type=int, default=5, help="how many kills of slots there are in a run")
    parser.add_argument("--runners", type=int, default=3, help="how many kills of runners")
    asked: Any = parser.parse_args(given)
    if asked.on == "ray":
        check_networks()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        began = time.monotonic()
        try:
            found = run_killed(seed, items=asked.items, slot_kills=asked.slots, runner_kills=asked.runners, on=asked.on)
        except AssertionError as error:
            failed += 1
            found = f"WRONG: {error}"
        print(f"{asked.on}, seed {seed}: {found}, in {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(f"{failed} of {asked.runs} runs were wrong" if failed else 0)


if __name__ == "__main__":
    main()

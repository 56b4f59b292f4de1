"""Workers and runners of a job on a Dask cluster, killed with SIGKILL again and again.

    PYTHONPATH=tests python -m cluster.kills --seed 7 [--items 150] [--workers 5] [--runners 3]

The evidence: each attempt holds the flock of its item, and so does a child of it in a session of its own; who finds it
held says so. Each step that has returned is noted, and one that is called after that says so. At the end the results
must be byte for byte what an undisturbed run writes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

from cluster.dask_servers import DaskServers
from waiting import eventually, happens_before_exit

LEASE = "4s"
COMMAND = "from agentrun_cli.entry import main; main()"
AGENT = dedent(
    """
    import fcntl, os, pathlib, subprocess, time

    def note(name, text):
        with open(name, "a") as file:
            file.write(text + "\\n")

    def agent(item, ctx):
        held = open(f"locks/{item.index}", "a")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("faults", f"{item.key} was alive twice")
        os.set_inheritable(held.fileno(), True)
        child = subprocess.Popen(["sleep", "600"], close_fds=False, start_new_session=True)

        def step(name):
            if os.path.exists(f"finished/{item.index}-{name}"):
                note("faults", f"{item.key}: the finished step {name} was called again")
            time.sleep(0.02)
            return f"{item.data['n']} {name}"

        said = []
        for name in ("one", "two", "three"):
            said.append(ctx.step(name, step, name))
            pathlib.Path(f"finished/{item.index}-{name}").touch()
        child.kill()
        child.wait()
        note("settled", item.key)
        return said
    """
)


class Killing:
    """One run, in a folder of its own, with a scheduler and workers of its own on loopback."""

    def __init__(self, folder: Path, *, items: int, workers: int = 2, threads: int = 2) -> None:
        self.folder = folder
        self._items = items
        self._environ = {**os.environ, "XDG_STATE_HOME": str(folder / "registry")}
        for name in ("locks", "finished", "registry"):
            (folder / name).mkdir()
        (folder / "agent.py").write_text(AGENT)
        lines = [json.dumps({"id": f"item-{n:04}", "n": n}) for n in range(items)]
        (folder / "items.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "job.toml").write_text(
            f'agent = "agent.py:agent"\noutput = "results.jsonl"\n[items]\njsonl = "items.jsonl"\nkey = "id"\n'
            f"[run]\nconcurrency = {workers * threads}\ncrash_limit = 0\n"
            f'[engine]\non = "dask:{folder}/scheduler.json"\nlease = "{LEASE}"\n'
        )
        self.servers = DaskServers(folder, workers=workers, threads=threads, environ=self._environ)

    def __enter__(self) -> Killing:
        self.servers.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.servers.__exit__()

    def launch(self, *, verb: str = "start") -> subprocess.Popen[bytes]:
        log = open(self.folder / "launches.log", "ab")  # noqa: SIM115
        with log:
            return subprocess.Popen(
                [sys.executable, "-c", COMMAND, verb, "job.toml", "-q"],
                stdout=log,
                stderr=log,
                env=self._environ,
                cwd=self.folder,
            )

    @property
    def settled(self) -> int:
        path = self.folder / "settled"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def _has_settled(self, count: int) -> bool:
        return self.settled >= count

    def check(self) -> None:
        """Nothing was done twice, and the results are those of an undisturbed run."""
        faults = self.folder / "faults"
        assert not faults.exists(), faults.read_text()
        expected = "".join(
            json.dumps(
                {"index": n, "key": f"item-{n:04}", "output": [f"{n} {step}" for step in ("one", "two", "three")]},
                separators=(",", ":"),
            )
            + "\n"
            for n in range(self._items)
        )
        assert (self.folder / "results.jsonl").read_text() == expected, self.log()

    def log(self) -> str:
        path = self.folder / "launches.log"
        return path.read_text() if path.exists() else ""

    def run(self, chance: random.Random, *, worker_kills: int, runner_kills: int) -> None:
        """Run the job to its end, with so many kills spread over it."""
        kills = ["worker"] * worker_kills + ["runner"] * runner_kills
        chance.shuffle(kills)
        moments = sorted(chance.randrange(1, self._items) for _ in kills)
        launch = self.launch()
        for kind, moment in zip(kills, moments, strict=True):
            happens_before_exit(launch, partial(self._has_settled, moment), f"{moment} items are settled")
            time.sleep(chance.random() * 0.3)
            if kind == "worker":
                if alive := self.servers.worker_processes():
                    os.kill(chance.choice(alive), signal.SIGKILL)
            else:
                launch.kill()
                launch.wait()
                launch = self.launch()
        eventually(lambda: launch.poll() is not None, f"the last launch ends\n{self.log()}")
        assert launch.returncode == 0, f"exit {launch.returncode}\n{self.log()}"
        self.check()


def run_killed(seed: int, *, items: int, worker_kills: int, runner_kills: int) -> None:
    """One run with kills at moments that the seed chooses."""
    with tempfile.TemporaryDirectory(prefix="agentrun-kills-") as folder, Killing(Path(folder), items=items) as killing:
        killing.run(random.Random(seed), worker_kills=worker_kills, runner_kills=runner_kills)


def long(chance: random.Random, minutes: float) -> tuple[int, int]:
    """For the long tests: how many runs there were, and how many failed; 20 at least."""
    tried = failed = 0
    until = time.monotonic() + minutes * 60
    while tried < 20 or time.monotonic() < until:
        seed = chance.randrange(1_000_000)
        tried += 1
        try:
            run_killed(seed, items=150, worker_kills=5, runner_kills=3)
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}: {error}", flush=True)
    return tried, failed


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--items", type=int, default=150)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--runners", type=int, default=3)
    asked: Any = parser.parse_args(given)
    for seed in range(asked.seed, asked.seed + asked.runs):
        began = time.monotonic()
        run_killed(seed, items=asked.items, worker_kills=asked.workers, runner_kills=asked.runners)
        print(f"seed {seed}: right, in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Jobs on real Dask clusters: schedulers and workers on loopback, and the real command."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from cli.conftest import COMMAND, begin, environment
from cluster.dask_servers import DaskServers, serve_dask
from needs import require_linux, require_module
from waiting import PATIENCE_SECONDS

__all__ = ["begin"]

require_linux()
require_module("distributed", extra="dask")

Begin = Callable[..., subprocess.Popen[str]]
AGENT = """
    import os, pathlib, time

    def agent(item, ctx):
        print("working on", item.key)
        here = pathlib.Path(__file__).parent
        ctx.step("first", len, item.text)
        with open(here / "ran.log", "a") as log:
            log.write(f"{os.environ.get('WORKER')}: {item.key}\\n")
        while (here / "hold").exists():
            time.sleep(0.01)
        (ctx.out / "made.txt").write_text(item.text[::-1])
        return {"text": item.text.upper(), "attempt": ctx.attempt}
    """
"""Notes the worker and the item, and goes on when there is no `hold`."""


class JobFolder:
    """A folder with a job named `j`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @property
    def results(self) -> bytes:
        return (self / "out.jsonl").read_bytes()

    @property
    def files(self) -> dict[str, bytes]:
        """What the items have published."""
        root = self / "out.files"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def lines(self, name: str) -> list[str]:
        path = self / name
        return path.read_text().splitlines() if path.exists() else []

    def ran(self) -> list[str]:
        """The items that were begun, in no order."""
        return sorted(line.partition(": ")[2] for line in self.lines("ran.log"))

    def outputs(self) -> list[Any]:
        return [json.loads(line)["output"] for line in self.lines("out.jsonl")]

    def status(self) -> dict[str, Any]:
        """Empty while the job is not known."""
        ended = self.run("status", "j", "--json")
        return json.loads(ended.stdout) if ended.returncode == 0 else {}

    def wheres(self) -> dict[str, str]:
        """By the keys of the items that run: where."""
        return {one["key"]: one["where"] for one in self.status().get("running", []) if one.get("where")}

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=environment(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )


def make_job(
    folder: Path, *, agent: str = AGENT, head: str = 'agent = "agent.py:agent"', items: int = 8, more: str = ""
) -> JobFolder:
    """`head` comes before the tables of the job file, `more` after them."""
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text(dedent(agent))
    (folder / "items.txt").write_text("".join(f"item {n}\n" for n in range(items)))
    (folder / "job.toml").write_text(
        f'name = "j"\noutput = "out.jsonl"\n{dedent(head)}\n[items]\nlines = "items.txt"\n{dedent(more)}'
    )
    return JobFolder(folder)


def finish(launch: subprocess.Popen[str], *, code: int = 0) -> str:
    """Wait for the end of a launch; what it told."""
    said, told = launch.communicate(timeout=PATIENCE_SECONDS)
    assert launch.returncode == code, said + told
    return said + told


@pytest.fixture(scope="session")
def cluster() -> Iterator[DaskServers]:
    """A scheduler with two workers of two threads each, for tests that leave them alive: `gpu` has a resource."""
    with serve_dask() as servers:
        servers.start_worker("plain", WORKER="plain")
        servers.start_worker("gpu", "--resources", "gpu=2", WORKER="gpu")
        servers.await_worker("plain")
        servers.await_worker("gpu")
        yield servers


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> JobFolder:
    """The job that `make_job` makes, run on this machine alone."""
    job = make_job(tmp_path_factory.mktemp("reference") / "here")
    ended = job.run("start", "job.toml", "--on", "here", "-j", "4")
    assert ended.returncode == 0, ended.stderr
    return job


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that mostly wait come first in the shares of different workers: the others run meanwhile."""
    waiting = [item for item in items if item.path.name == "test_engine_lost.py"]
    share = math.ceil(len(items) / 4)
    items[:] = [item for item in items if item not in waiting]
    for number, item in enumerate(waiting):
        items.insert(number * share, item)

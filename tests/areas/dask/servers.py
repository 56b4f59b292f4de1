"""A Dask scheduler and named workers, each of which a test can kill, stop or shut off: on loopback alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from waiting import eventually

DASK = str(Path(sys.executable).parent / "dask")
CANARY = "TEST_CANARY"
_STOP_SECONDS = 20


class Servers:
    """A scheduler, and the workers that a test starts; each writes a log in `folder`."""

    def __init__(self, folder: Path, *, environ: dict[str, str]) -> None:
        self.folder = folder
        self.canary = uuid.uuid4().hex
        """In the environment of everything that the servers start."""
        self.scratch = folder / "tmp"
        """Where the workers, and what they start, put their temporary files."""
        self.scratch.mkdir()
        self.file = folder / "scheduler.json"
        self._environ = environ
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def on(self) -> str:
        """The address for `--on`, such as `dask://127.0.0.1:8786`."""
        return str(json.loads(self.file.read_text())["address"]).replace("tcp:", "dask:")

    def start_scheduler(self) -> None:
        options = ["--port", "0", "--dashboard-address", "127.0.0.1:0"]
        process = self._start("scheduler", [DASK, "scheduler", *self._common, *options], {})
        eventually(self._is_up, "the scheduler listens", alive=process)

    def start_worker(
        self, name: str, *options: str, threads: int = 2, prefix: tuple[str, ...] = (), **environ: str
    ) -> None:
        """A single process, without a nanny that would start it again. It may not be up when this returns."""
        given = ["--no-dashboard", "--no-nanny", "--name", name, "--nthreads", str(threads), *options]
        local = ["--local-directory", str(self.folder / f"{name}.local")]
        self._start(name, [*prefix, DASK, "worker", *self._common, *given, *local], environ)

    def await_worker(self, name: str) -> str:
        """The address of a worker, when it has joined."""
        eventually(lambda: self.address_of(name), f"the worker {name} is up", alive=self._servers[name])
        return self.address_of(name)

    def address_of(self, name: str) -> str:
        """Empty while the worker is not up."""
        text = self.log(name)
        if "Registered to:" not in text:
            return ""
        return next(line.split()[-1] for line in text.splitlines() if "Start worker at:" in line)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def pid(self, name: str) -> int:
        return self._servers[name].pid

    def kill(self, name: str) -> None:
        process = self._servers.pop(name)
        process.kill()
        process.wait()

    def started(self) -> set[int]:
        """The live processes that the servers have started, and what those have started."""
        return carriers(CANARY, self.canary) - {process.pid for process in self._servers.values()}

    def scratches(self) -> list[str]:
        """What agentrun has among the workers' temporary files."""
        return [path.name for path in self.scratch.glob("agentrun-*")]

    def close(self) -> None:
        """At once: a worker that is asked to end may first wait for a scheduler that is gone."""
        for process in self._servers.values():
            process.kill()
        for process in self._servers.values():
            process.wait()
        self._servers.clear()
        eventually(lambda: not self._kill_started(), "nothing is left of the servers")

    def _kill_started(self) -> set[int]:
        for pid in (left := self.started()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    @property
    def _common(self) -> list[str]:
        return ["--host", "127.0.0.1", "--scheduler-file", str(self.file)]

    def _is_up(self) -> bool:
        try:
            return bool(self.on)
        except (OSError, ValueError):  # it is being written
            return False

    def _start(self, name: str, command: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
        environ = {**self._environ, "TMPDIR": str(self.scratch), CANARY: self.canary, **environ}
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd="/", start_new_session=True
            )
        self._servers[name] = process
        return process


def carriers(name: str, value: str) -> set[int]:
    """The live processes that have this variable in their environment."""
    entry = f"{name}={value}".encode()
    found = set()
    for pid in (one for one in os.listdir("/proc") if one.isdigit()):
        with suppress(OSError):
            if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(int(pid))
    return found


@contextmanager
def serve_dask(**environ: str) -> Iterator[Servers]:
    """A scheduler without workers; at the end everything is stopped. `environ` is for all servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTRUN_", "DASK_"))}
    with TemporaryDirectory(prefix="dask-servers-") as folder:
        servers = Servers(Path(folder), environ={**kept, **environ})
        try:
            servers.start_scheduler()
            yield servers
        finally:
            servers.close()

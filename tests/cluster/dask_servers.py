"""A Dask scheduler and its workers, on loopback, as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from agentrun.system.guardian import list_processes
from waiting import eventually

DASHBOARD = ("--dashboard-address", "127.0.0.1:0")


class DaskServers:
    """They end with the block. `file` is the scheduler file, by which clients and further workers find them."""

    def __init__(
        self, folder: Path, *, workers: int = 2, threads: int = 2, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self._workers, self._threads = workers, threads
        self._environ = dict(os.environ if environ is None else environ)
        self._servers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> DaskServers:
        try:
            self.scheduler = self._serve("scheduler", "--port", "0")
            eventually(self.file.exists, "the scheduler is up", alive=self.scheduler)
            for _ in range(self._workers):
                self.add_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for server in reversed(self._servers):
            server.terminate()
        for server in self._servers:
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def add_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        """One more worker; the process that is returned is its nanny."""
        local = ("--nthreads", str(self._threads), "--local-directory", str(self.folder / "scratch"))
        return self._serve("worker", *local, *arguments)

    def worker_processes(self) -> list[int]:
        """The processes that run tasks. When one is killed, its nanny starts another."""
        nannies = {server.pid for server in self._servers if server is not self.scheduler}
        found = []
        for one in list_processes().values():
            try:
                if one.parent in nannies and b"spawn_main" in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                    found.append(one.pid)
            except OSError:
                pass  # it has just ended
        return found

    def _serve(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        common = ("--host", "127.0.0.1", "--scheduler-file", str(self.file), *DASHBOARD)
        with open(self.folder / f"{kind}.log", "ab") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "dask", kind, *common, *arguments],
                stdout=log,
                stderr=log,
                env=self._environ,
                cwd="/",
            )
        self._servers.append(server)
        return server

"""A Dask scheduler and workers, each of which a test can kill, stop or cut off; on loopback unless told otherwise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrun.system.guardian import list_processes
from waiting import eventually

DASK = str(Path(sys.executable).parent / "dask")
LOOPBACK = "127.0.0.1"
CANARY = "TEST_CANARY"
SCHEDULER = "scheduler"


class DaskServers:
    """A scheduler, `workers` workers that are started again when they die, and those that a test starts.

    They end with the block, with everything that they have started. Each writes a log in `folder`, which must exist.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 0,
        threads: int = 2,
        environ: Mapping[str, str] | None = None,
        host: str = LOOPBACK,
        prefix: tuple[str, ...] = (),
    ) -> None:
        """`host` and `prefix` are the scheduler's: where it listens, and the command by which it is started."""
        self.folder = folder
        self.canary = uuid.uuid4().hex
        """In the environment of everything that the servers start."""
        self.scratch = folder / "tmp"
        """Where the workers, and what they start, put their temporary files."""
        self.scratch.mkdir()
        self.file = folder / "scheduler.json"
        """By which clients and further workers find the scheduler."""
        self._workers, self._threads = workers, threads
        self._host, self._prefix = host, prefix
        self._environ = dict(os.environ if environ is None else environ)
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._nannies: set[int] = set()

    def __enter__(self) -> DaskServers:
        try:
            self.start_scheduler()
            for number in range(self._workers):
                self.start_worker(f"worker-{number}", threads=self._threads, has_nanny=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """At once: a worker that is asked to end may first wait for a scheduler that is gone."""
        for process in self._servers.values():
            process.kill()
        for process in self._servers.values():
            process.wait()
        self._servers.clear()
        eventually(lambda: not self._kill_started(), "nothing is left of the servers")

    @property
    def on(self) -> str:
        """The address for `--on`, such as `dask://127.0.0.1:8786`."""
        return str(json.loads(self.file.read_text())["address"]).replace("tcp:", "dask:")

    def start_scheduler(self) -> None:
        """Again at the same address, if it was killed."""
        port = self.on.rpartition(":")[2] if self.file.exists() else "0"
        self.file.unlink(missing_ok=True)
        options = ("--host", self._host, "--port", port, "--dashboard-address", f"{LOOPBACK}:0")
        process = self._start(SCHEDULER, [*self._prefix, DASK, "scheduler", *self._common, *options], {})
        eventually(self._is_up, "the scheduler listens", alive=process)

    # ---- workers

    def start_worker(
        self,
        name: str,
        *options: str,
        threads: int = 2,
        has_nanny: bool = False,
        host: str = LOOPBACK,
        prefix: tuple[str, ...] = (),
        **environ: str,
    ) -> None:
        """A single process; or with a nanny, which starts another when that dies. It may not be up on return."""
        kind = ["--nanny" if has_nanny else "--no-nanny", "--no-dashboard", "--host", host]
        given = ["--name", name, "--nthreads", str(threads), "--local-directory", str(self.folder / f"{name}.local")]
        process = self._start(name, [*prefix, DASK, "worker", *self._common, *kind, *given, *options], environ)
        if has_nanny:
            self._nannies.add(process.pid)

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

    # ---- processes and files

    def worker_processes(self) -> list[int]:
        """The processes that run tasks under nannies."""
        found = []
        for one in list_processes().values():
            with suppress(OSError):  # it has just ended
                if one.parent in self._nannies and b"spawn_main" in Path(f"/proc/{one.pid}/cmdline").read_bytes():
                    found.append(one.pid)
        return found

    def started(self) -> set[int]:
        """The live processes that the servers have started, and what those have started."""
        return carriers(CANARY, self.canary) - {process.pid for process in self._servers.values()}

    def scratches(self) -> list[str]:
        """What agentrun has among the workers' temporary files."""
        return [path.name for path in self.scratch.glob("agentrun-*")]

    def _kill_started(self) -> set[int]:
        for pid in (left := self.started()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    @property
    def _common(self) -> list[str]:
        return ["--scheduler-file", str(self.file)]

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
def serve_dask(**environ: str) -> Iterator[DaskServers]:
    """A scheduler without workers, in a folder of its own. `environ` is for all servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTRUN_", "DASK_"))}
    with (
        TemporaryDirectory(prefix="dask-servers-") as folder,
        DaskServers(Path(folder), environ={**kept, **environ}) as servers,
    ):
        yield servers

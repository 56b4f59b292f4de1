"""A network namespace, such as Ray needs, which listens on more than loopback: nobody else is there.

Everything in it ends with the block, and nothing is written outside a folder of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from cli.conftest import COMMAND, environment
from needs import find_program
from waiting import PATIENCE_SECONDS, eventually

RAY = str(Path(sys.executable).parent / "ray")
ADDRESS = "10.1.2.3"
"""Ray believes to be on a machine with a network: it looks up which address leads to the outside."""
ALONE = f"ip link set lo up && ip addr add {ADDRESS}/32 dev lo && ip route add default dev lo src {ADDRESS}"


class Network:
    """A namespace that the commands `set_up` have made usable: with loopback and one further address, or else."""

    def __init__(self, set_up: str = ALONE) -> None:
        self._set_up = set_up
        # Short: the paths of Ray's sockets are in it.
        self.folder = Path(tempfile.mkdtemp(prefix="n-", dir="/tmp"))
        self.home, self.tmp, self.sessions = (self.folder / name for name in ("home", "tmp", "ray"))
        for folder in (self.home, self.tmp):
            folder.mkdir()
        self._keeper: subprocess.Popen[str]

    def __enter__(self) -> Network:
        command = ["unshare", "--net", "sh", "-c", f"{self._set_up} && echo up && exec sleep infinity"]
        self._keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "up\n":
            self._keeper.communicate()
            shutil.rmtree(self.folder)
            raise AssertionError("the network namespace could not be set up: this needs root, with CAP_SYS_ADMIN")
        return self

    @property
    def keeper(self) -> int:
        """A process that is in it as long as it exists."""
        return self._keeper.pid

    @property
    def entering(self) -> tuple[str, ...]:
        """The beginning of a command line that is run in it."""
        return ("nsenter", f"--net=/proc/{self.keeper}/ns/net")

    def __exit__(self, *exc: object) -> None:
        eventually(lambda: not self._kill_all(), "everything in the network namespace has ended")
        self._keeper.kill()
        self._keeper.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_all(self) -> dict[int, str]:
        found = self.processes()
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def start(
        self,
        *command: str,
        cwd: Path | None = None,
        log: IO[str] | int = subprocess.PIPE,
        environ: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command in the namespace. Its output goes to `log`, if one is given."""
        kept = {name: value for name, value in environment().items() if not name.startswith("RAY_")}
        return subprocess.Popen(
            [*self.entering, *command],
            cwd=cwd or self.folder,
            env={
                **kept,
                "HOME": str(self.home),
                "TMPDIR": str(self.tmp),
                "RAY_TMPDIR": str(self.tmp),
                **(environ or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
        )

    def agentrun(
        self, *arguments: str, cwd: Path, log: IO[str] | int = subprocess.PIPE, **environ: str
    ) -> subprocess.Popen[str]:
        return self.start(COMMAND, *arguments, cwd=cwd, log=log, environ=environ)

    def start_head(self, *options: str, **environ: str) -> None:
        """A Ray of two CPUs on loopback. Its session is in `sessions`."""
        started = self.start(
            *(RAY, "start", "--head", "--node-ip-address", "127.0.0.1", "--port", "6379", "--num-cpus", "2"),
            *("--include-dashboard", "false", "--disable-usage-stats"),
            *("--object-store-memory", str(100 << 20), "--temp-dir", str(self.sessions), *options),
            environ=environ,
        )
        finish(started)

    def processes(self, of: Callable[[str], bool] = lambda command: True) -> dict[int, str]:
        """The live processes in the namespace, by their command lines."""
        found = {}
        ours = os.readlink(f"/proc/{self._keeper.pid}/ns/net")
        assert ours != os.readlink("/proc/self/ns/net"), "this is everybody's network"
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            with suppress(OSError):
                if pid != self._keeper.pid and os.readlink(f"/proc/{pid}/ns/net") == ours:
                    command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
                    if command and of(command):  # a process that is dead, and not yet waited for, has none
                        found[pid] = command
        return found

    def kill(self, part: str) -> None:
        """SIGKILL for the processes with this in their command lines; there must be one."""
        found = self.processes(lambda command: part in command)
        assert found, f"no {part} among {self.processes()}"
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def listening(self) -> set[str]:
        """The addresses, in the kernel's hexadecimal digits, at which somebody listens."""
        return {address for address, _ in self._listening()}

    def ports(self) -> set[int]:
        """The ports at which somebody listens."""
        return {int(port, 16) for _, port in self._listening()}

    def _listening(self) -> list[tuple[str, str]]:
        tables = [Path(f"/proc/{self._keeper.pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
        rows = [line.split() for table in tables for line in table.splitlines()[1:]]
        places = [row[1].partition(":") for row in rows if row[3] == "0A"]
        return [(address, port) for address, _, port in places]


def check_networks() -> None:
    """AssertionError if this machine cannot have network namespaces: for programs that are no tests."""
    assert os.geteuid() == 0, "network namespaces need root; run it as root"
    missing = [name for name in ("ip", "nsenter", "unshare") if not find_program(name)]
    assert not missing, f"there is no program {missing[0]}; get it with: make system"


def finish(process: subprocess.Popen[str], *, code: int = 0) -> str:
    """Wait for its end; what it told."""
    said, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, f"exit {process.returncode}\n{said}{told}"
    return said + told

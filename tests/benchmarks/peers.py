"""The peers: what people would use instead, in an environment of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TAIL = 200


@dataclass(frozen=True)
class Peer:
    name: str
    module: str
    """Of contenders/."""
    packages: tuple[str, ...]
    share: int
    """It gets so many times fewer items than agentrun, for it takes longer over each."""


LANGGRAPH = Peer("LangGraph sync", "langgraph_sync", ("langgraph", "langgraph-checkpoint-sqlite"), 2)
DBOS = Peer("DBOS", "dbos_steps", ("dbos",), 4)
PREFECT = Peer("Prefect", "prefect_tasks", ("prefect",), 10)
PEERS = (LANGGRAPH, DBOS, PREFECT)


class Peers:
    """Those that could be installed, and why the others could not."""

    def __init__(self, folder: Path, *, wanted: bool, say: Callable[[str], None]) -> None:
        self.python = str(folder / "bin" / "python")
        self.missing: dict[str, str] = {}
        self._folder = folder
        for peer in PEERS:
            reason = self._install(peer, say) if wanted else "not asked for (--no-peers)"
            if reason:
                self.missing[peer.name] = reason

    def present(self) -> list[Peer]:
        return [peer for peer in PEERS if peer.name not in self.missing]

    def versions(self) -> list[str]:
        if len(self.missing) == len(PEERS):
            return []
        names = [package for peer in self.present() for package in peer.packages]
        code = f"from importlib.metadata import version as v\nfor n in {names!r}: print(n, v(n))"
        return subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()

    def _install(self, peer: Peer, say: Callable[[str], None]) -> str:
        """Each alone: one that cannot be had does not take the others with it. Returns what went wrong."""
        stamp = self._folder / f".{peer.module}"
        if stamp.exists():
            return ""
        say(f"installing {' '.join(peer.packages)}")
        try:
            if not Path(self.python).exists():
                subprocess.run([sys.executable, "-m", "venv", str(self._folder)], check=True, capture_output=True)
            pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
            subprocess.run(pip, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", "") or str(error)
            lines = [line for line in str(told).splitlines() if line.startswith("ERROR")] or [str(error)]
            return f"could not be installed: {lines[-1][:TAIL]}"
        stamp.touch()
        return ""


def parallel() -> str | None:
    """GNU parallel; the `parallel` of moreutils is another program."""
    path = shutil.which("parallel")
    if path is None:
        return None
    told = subprocess.run([path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return path if told.stdout.startswith("GNU parallel") else None

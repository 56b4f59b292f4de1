"""The peers: what people would use instead, each in an environment of its own.

One for all would do, if their requirements never contradicted each other.
"""

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
# Its server is written for a FastAPI that knows `min_items`, and does not say so in its requirements.
PREFECT = Peer("Prefect", "prefect_tasks", ("prefect", "fastapi<0.151"), 10)
PEERS = (LANGGRAPH, DBOS, PREFECT)


class Peers:
    """Those that could be installed, and why the others could not."""

    def __init__(self, folder: Path, *, wanted: bool, say: Callable[[str], None]) -> None:
        self.missing: dict[str, str] = {}
        self._folder = folder
        for peer in PEERS:
            reason = self._install(peer, say) if wanted else "not asked for (--no-peers)"
            if reason:
                self.missing[peer.name] = reason

    def python(self, peer: Peer) -> str:
        return str(self._folder / f"venv-{peer.module}" / "bin" / "python")

    def present(self) -> list[Peer]:
        return [peer for peer in PEERS if peer.name not in self.missing]

    def versions(self) -> list[str]:
        code = "import sys, importlib.metadata as m\nfor name in sys.argv[1:]: print(name, m.version(name))"
        found: list[str] = []
        for peer in self.present():
            names = [package.partition("<")[0] for package in peer.packages]
            told = subprocess.run([self.python(peer), "-c", code, *names], capture_output=True, text=True, check=True)
            found += told.stdout.splitlines()
        return found

    def _install(self, peer: Peer, say: Callable[[str], None]) -> str:
        """Each alone: one that cannot be had does not take the others with it. Returns what went wrong."""
        python, folder = self.python(peer), self._folder / f"venv-{peer.module}"
        stamp = folder / ".installed"
        if stamp.exists():
            return ""
        say(f"installing {' '.join(peer.packages)}")
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
            subprocess.run(pip, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", "") or str(error)
            lines = [line for line in str(told).splitlines() if line.startswith("ERROR")] or [type(error).__name__]
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

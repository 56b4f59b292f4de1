"""Every result its own item's: what can be taken for another, tried through the command alone.

    AGENTRUN=/elsewhere/bin/agentrun pytest tests/identity

runs the same tests on another version. So nothing here imports the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waiting import PATIENCE_SECONDS

COMMAND = os.environ.get("AGENTRUN") or str(Path(sys.executable).parent / "agentrun")
"""The command under test."""

Ended = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which `agentrun` is called."""

    folder: Path
    begun: list[subprocess.Popen[str]]

    def write(self, name: str, text: str, *, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def lines(self, count: int, name: str = "items.txt") -> None:
        """A file of items: `item 0`, `item 1` …"""
        self.write(name, "".join(f"item {n}\n" for n in range(count)))

    def job(self, name: str = "work", *, items: str = 'lines = "items.txt"', run: str = "", **values: Any) -> None:
        """A job file `<name>.toml`; `run` is the text of its table [run]."""
        top = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        self.write(f"{name}.toml", f"{top}[items]\n{items}\n[run]\n{run}\n")

    def __call__(
        self, *words: str, stdin: str = "", cwd: Path | None = None, wrapper: tuple[str, ...] = (), **environ: str
    ) -> Ended:
        """Run `agentrun …` to its end, by `wrapper` if there is one."""
        return subprocess.run(
            [*wrapper, COMMAND, *words],
            cwd=cwd or self.folder,
            env=environment(environ),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def begin(self, *words: str, wrapper: tuple[str, ...] = (), **environ: str) -> subprocess.Popen[str]:
        """Start `agentrun …` in the background, by `wrapper` if there is one."""
        process = subprocess.Popen(
            [*wrapper, COMMAND, *words],
            cwd=self.folder,
            env=environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.begun.append(process)
        return process

    def results(self, name: str = "work.results.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def outputs(self, name: str = "work.results.jsonl") -> dict[str, Any]:
        """What each item's result is, by key."""
        return {line["key"]: line["output"] for line in self.results(name)}

    def said(self, name: str) -> list[str]:
        """The lines that agents have left in this file."""
        try:
            return (self.folder / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def state(self, job: str = "work") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / ".agentrun" / job / "state.json").read_bytes())
        return found


def environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUN")}
    return {**kept, "TERM": "dumb", "PYTHONUTF8": "1", **more}

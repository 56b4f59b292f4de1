"""Launches for front ends that stay open: `agentrun start` or `resume` in the background, as a person would type it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_DISK = 74
"""The exit code of a launch whose disk failed or is full."""


@dataclass(frozen=True, slots=True)
class Launched:
    """How a launch in the background began."""

    exit_code: int
    """0 once its first checkpoint is on disk, or if there was nothing to do; otherwise the launch's own."""
    said: str
    """What it said on standard error until then."""


def launch_in_background(words: Sequence[str], *, folder: Path | None = None) -> Launched:
    """Run `agentrun words… --detach` in `folder`; return once it is on its way, or has ended."""
    try:
        return _launch(words, folder)
    except OSError as error:
        return Launched(_DISK, f"the launch could not be made: {error.strerror or error}")


def _launch(words: Sequence[str], folder: Path | None) -> Launched:
    # Files, not pipes: what the launch starts may hold its streams for as long as the run takes.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "from agentrun_cli.entry import main; main()", *words, "--detach"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            check=False,
        )
        said.seek(0)
        return Launched(done.returncode, said.read(1 << 16).decode("utf-8", "replace"))

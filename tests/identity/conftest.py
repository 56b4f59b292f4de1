"""A place to call the command in."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from identity.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "place"
    folder.mkdir()
    begun: list[subprocess.Popen[str]] = []
    yield Place(folder, begun)
    for process in begun:
        if process.poll() is None:
            # Frozen ones too.
            for number in (signal.SIGKILL, signal.SIGCONT):
                os.killpg(process.pid, number)
        process.communicate()

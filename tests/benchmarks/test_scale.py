"""The simulation completes, and says everything. No test asserts a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.arena import TESTS

ROWS = [
    "items/s sustained",
    "items/s of one core",
    "CPU time per item, first tenth",
    "CPU time per item, last tenth",
    "last tenth / first tenth",
    "peak memory of the runner",
    "of that, when the first item started",
    "largest state.json",
    "checkpoints/s",
    "bytes written per item",
    "of these, journal",
    "messages/s, both ways",
    "first pass over the source",
    "last pass, and the results",
    "results.jsonl",
]


@pytest.mark.parametrize("more", [[], ["--apart"]])
def test_a_small_simulation_completes_and_has_every_row(tmp_path: Path, more: list[str]) -> None:
    words = ["--items", "2000", "--slots", "50", "--seconds", "0.01", "--folder", str(tmp_path / "scale"), *more]
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", *words],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    machine, _, table = told.stdout.partition("\n\n")
    assert machine.startswith("- ") and "file system: " in machine
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    assert head[0] == "2,000 items, 50 slots"
    assert [row[0] for row in rows] == ROWS and all(row[1] for row in rows)
    assert "2,000 settled" in told.stderr, "progress is told"
    assert not list((tmp_path / "scale").iterdir()), "what was measured in is left behind"

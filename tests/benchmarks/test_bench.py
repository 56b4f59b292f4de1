"""The harness works. What it measures is not judged here: no test asserts a time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.arena import TESTS
from benchmarks.table import HEAD, Row, Spread, as_bytes, as_rate, as_time, at_most, missing, ratios, render


def test_two_figures_without_peers_give_a_table_with_a_row_for_each(tmp_path: Path) -> None:
    words = ["--quick", "--rounds", "1", "--no-peers", "--only", "cli,serve", "--folder", str(tmp_path / "bench")]
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words, "--write", str(tmp_path / "table.md")],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    machine, _, table = told.stdout.partition("\n\n")
    assert re.match(r"- \d+ cores", machine) and "file system: " in machine and "**quick**" in machine
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    assert rows[0][:-1] == list(HEAD[:-1])
    assert [len(row) for row in rows] == [len(HEAD)] * 6
    judged = [row for row in rows[2:] if row[5]]
    assert [row[0] for row in judged][:2] == ["`agentrun status`", "`agentrun --help`"]
    for _, ours, _, theirs, ratio, must, verdict in judged:
        assert re.match(r"\d+(\.\d+)? (µs|ms|s)", ours) and re.match(r"\d+(\.\d+)? (µs|ms|s)", theirs)
        assert re.match(r"\d+\.\d+", ratio) and must.startswith("≤") and verdict in ("ok", "**not reached**")
    assert (tmp_path / "table.md").read_text() == told.stdout
    assert not list((tmp_path / "bench").glob("run-*")), "what was measured in is left behind"
    assert "serve: round 1 of 1" in told.stderr, "progress is told"


def test_a_figure_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    words = ["--only", "speed", "--folder", str(tmp_path)]
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    assert "there is no speed; there are item, rate" in told.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--against", "no-such-commit"], 1, "there is no commit no-such-commit here"),
        (["--against", "HEAD", "--only", "cli,memory"], 2, "against a commit there is no memory; there are item, rate"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(tmp_path: Path, words: list[str], code: int, says: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words, "--folder", str(tmp_path)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == code and says in told.stderr, told.stderr
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_taken_within_a_round_and_judged_by_its_median() -> None:
    ours, theirs = Spread([1.0, 4.0, 1.0], as_time), Spread([2.0, 2.0, 1.0], as_time)
    assert list(ratios(ours.values, theirs.values).values) == [0.5, 2.0, 1.0]
    assert at_most("x", ours, "y", theirs, 1.0, "≤ 1").ok is True
    assert at_most("x", ours, "y", theirs, 0.9, "≤ 0.9").ok is False


def test_a_peer_that_is_not_there_has_a_row_with_the_reason() -> None:
    table = render([missing("time", "DBOS", "≤ 1/4", "could not be installed: a | b")])
    assert table.splitlines()[-1] == r"| time |  | DBOS |  |  | ≤ 1/4 | not judged: could not be installed: a \| b |"


def test_values_are_told_with_their_unit_and_spread() -> None:
    assert str(Spread([0.0004, 0.0002, 0.0003], as_time)) == "300 µs (200 µs … 400 µs)"
    assert [as_time(0.25), as_time(12.0), as_rate(12345.6)] == ["250 ms", "12.0 s", "12,346/s"]
    assert [as_bytes(700), as_bytes(12288), as_bytes(150e6)] == ["700 B", "12.0 KiB", "150 MB"]
    assert Row("x", must="≤ 1", ok=False, note="by much").verdict == "**not reached**: by much"

"""A full disk, at every size: exit 74, nothing lost, and grown it goes on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.command_line import Place, place
from crash.harness import Long, again_and_again, seeded
from needs import require, require_linux, require_program, require_root

KINDS = ("async", "process", "command", "thread")
TOTAL = 40
SIZES_KIB = [8 + 15 * n for n in range(25)]
"""From what does not hold the lock to what holds all."""

# It prints, and its output is long: both end on the disk that is full.
AGENT = """
import asyncio, os, sys

def begin(item):
    fd = os.open(os.environ["CRASH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{os.environ['CRASH_LAUNCH']} {item.text}\\n".encode())
    os.close(fd)
    print("working on", item.text, "-" * 2000)

def sync_agent(item):
    begin(item)
    return item.text * 1000

async def async_agent(item):
    begin(item)
    await asyncio.sleep(0.001)
    return item.text * 1000
"""
SCRIPT = """#!/bin/sh
echo "$CRASH_LAUNCH $1" >> "$CRASH_CALLS"
head -c 2000 /dev/zero >&2
i=0; out=""
while [ $i -lt 1000 ]; do out="$out$1"; i=$((i+1)); done
echo "\\"$out\\""
"""


def results() -> bytes:
    return b"".join(b'{"index":%d,"key":"%d","output":"%s"}\n' % (n, n, str(n).encode() * 1000) for n in range(TOTAL))


@contextmanager
def small_disk(path: Path, kib: int) -> Iterator[None]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "none", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def grow(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=4m", str(path)], check=True)


def why_not() -> str:
    """Why no disk can be mounted and filled here; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        return "needs root on Linux"
    probe = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"], capture_output=True, check=False)
    if probe.returncode:
        return f"cannot mount a tmpfs: {probe.stderr.decode(errors='replace').strip()}"
    subprocess.run(["umount", "/mnt"], check=True)
    return ""


@pytest.fixture
def mounting() -> None:
    require_linux()
    require_root()
    require_program("mount")
    reason = why_not()
    require(not reason, f"no disk was filled: {reason}", remedy="run it in a container that may mount")


def prepare(job: Place) -> None:
    (job.base / "agent.py").write_text(AGENT)
    (job.base / "agent.sh").write_text(SCRIPT)


def fill_the_state(rng: random.Random, kib: int, kind: str) -> bool:
    """True if it was too small."""
    concurrency = rng.choice([1, 4])
    with place(kind=kind, total=TOTAL, concurrency=concurrency) as job, small_disk(job.base / "small", kib):
        prepare(job)
        job.state_dir = job.base / "small" / "state"
        code = job.finish()
        assert code in (0, 74), (kib, kind, code, job.said[-3000:])
        job.check_words()
        if code:
            assert "the disk is full" in job.said, job.said[-2000:]
            done, begun = job.done(), set(job.calls()[1])
            assert len(begun - done) <= concurrency, f"at {kib} KiB, acknowledged after the error: {begun - done}"
            assert not job.results_path.exists()
            grow(job.base / "small")
            assert job.finish() == 0, job.said[-3000:]
            again = done & set(job.calls()[2])
            assert not again, f"at {kib} KiB, finished and run again: {sorted(again)}"
        job.check_words()
        assert job.is_finished and job.results_path.read_bytes() == results()
        return code == 74


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_is_74_and_grown_it_goes_on(kind: str) -> None:
    sizes = SIZES_KIB[KINDS.index(kind) :: len(KINDS)]
    with seeded(f"full {kind}") as rng:
        full = [fill_the_state(rng, kib, kind) for kib in sizes]
    assert full[0] and not full[-1], "the sizes do not reach from too small to large enough"


def fill_the_output(rng: random.Random, kib: int) -> None:
    with place(kind="async", total=TOTAL) as job, small_disk(job.base / "small", kib):
        prepare(job)
        job.output = job.base / "small" / "results.jsonl"
        job.lay_out()
        prepare(job)
        assert job.finish() == 74, job.said[-2000:]
        assert "the disk is full" in job.said
        assert job.done() == set(range(TOTAL))
        assert not job.output.exists()
        left = os.listdir(job.base / "small")
        assert left == [".results.claim"], f"left on the full disk: {left}"
        grow(job.base / "small")
        assert job.finish() == 0, job.said[-2000:]
        assert job.calls().keys() == {1}, "finished items were run again"
        assert job.output.read_bytes() == results()
        job.check_words()


@pytest.mark.usefixtures("mounting")
@pytest.mark.parametrize("kib", [4, 40])
def test_an_output_on_another_full_disk_loses_nothing(kib: int) -> None:
    with seeded(f"output {kib}") as rng:
        fill_the_output(rng, kib)


def _one(rng: random.Random) -> int:
    if rng.random() < 0.1:
        fill_the_output(rng, rng.randint(4, 56))
    else:
        fill_the_state(rng, rng.randint(4, 160), rng.choice(KINDS))
    return 1


LONG: dict[str, Long] = {"full disk": again_and_again(_one)}

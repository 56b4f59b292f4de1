"""A million items of a jsonl: memory, a resume in the middle, and the results.

One run, 64 at a time: killed at half, gone on with, killed at the last item. Copies of that are gone on with to the
end, one a round, each of which writes the results of all.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from benchmarks.arena import AGENTRUN, JOB, Arena, Took
from benchmarks.bench import OURS, Bench, Race
from benchmarks.table import Row, Spread, as_bytes, as_time, at_most

WIDTH = 64


@dataclass(frozen=True)
class Million:
    total: int
    launches: list[Took]
    """To the half, and from there to the last item."""
    resumes: Race[Took]
    ends: Race[Took]
    copies: list[float]
    """Seconds of `cat` of the journal and an fsync."""


def memory(bench: Bench) -> list[Row]:
    """VmHWM of the runner: of a launch from the first item to the half, and of the one that goes on to the last."""
    million = _measure(bench)
    peaks = [took.marks["peak_bytes"] for took in million.launches]
    peaks += [took.report["peak_bytes"] for took in million.ends.taken[OURS]]
    ours = Spread([max(peaks)], as_bytes)
    note = "to the half, from there to the last, to the end: " + ", ".join(as_bytes(peak) for peak in peaks[:3])
    what = f"peak memory of the runner, {million.total:,} items of a jsonl, `-j {WIDTH}`"
    return [Row(what, ours, must="≤ 150 MB", ok=ours.middle <= 150e6, note=note)]


def resume(bench: Bench) -> list[Row]:
    million = _measure(bench)
    ours = million.resumes.spread(OURS, lambda took: took.to_first)
    theirs = million.resumes.spread("json.loads", lambda took: float(took.printed))
    what = f"{million.total:,} items, killed at {million.total // 2:,}: resume → first item"
    return [at_most(what, ours, "`json.loads` of each line of the source", theirs, 3, "≤ 3")]


def results(bench: Bench) -> list[Row]:
    million = _measure(bench)
    ends = million.ends.taken[OURS]
    peak = Spread([took.report["results_peak_bytes"] for took in ends], as_bytes)
    ours = Spread([took.report["results_seconds"] for took in ends], as_time)
    what = f"writing the results of {million.total:,} items in order"
    cat = "`cat` of the journal + fsync"
    return [
        Row(f"{what}: peak memory", peak, must="≤ 200 MB", ok=max(peak.values) <= 200e6),
        at_most(f"{what}: time", ours, cat, Spread(million.copies, as_time), 6, "≤ 6"),
    ]


@cache
def _measure(bench: Bench) -> Million:
    """Once, for all three figures."""
    arena, total, rounds = bench.arena, bench.sizes.million, bench.sizes.rounds_of_long
    half = total // 2
    place = arena.job(total, width=WIDTH)
    bench.say(f"{total:,} items, to be killed at {half:,}")
    launches = [arena.agentrun(place, total=total, die_at=half)]

    # It dies at its first call: every round finds the same.
    resumes = bench.race(
        {
            OURS: lambda: arena.agentrun(place, "resume", "job.toml", "-q", total=total, die_at=0),
            "json.loads": lambda: arena.module("jsonlines", total=total),
        },
        rounds=rounds,
    )
    bench.say("going on to the last item")
    launches.append(arena.agentrun(place, "resume", "job.toml", "-q", total=total, die_at=_left(place) - 1))

    copies: list[float] = []
    ends = bench.race({OURS: lambda: _to_the_end(arena, place, total, copies)}, rounds=rounds)
    arena.leave(place)
    return Million(total, launches, resumes, ends, copies)


def _left(place: Path) -> int:
    """How many items are neither done nor failed, by agentrun's own word."""
    told = subprocess.run(
        [AGENTRUN, "status", JOB, "--json"],
        cwd=place,
        capture_output=True,
        check=True,
    )
    return cast(int, json.loads(told.stdout)["counts"]["pending"])


def _to_the_end(arena: Arena, place: Path, total: int, copies: list[float]) -> Took:
    """Of a copy, since it can be ended once; then `cat` of the journal that it has filed."""
    copy = arena.copy(place)
    try:
        took = arena.agentrun(copy, "resume", "job.toml", "-q", total=total, probed=True)
        journal = next((copy / ".agentrun" / JOB / "runs").glob("*.jsonl"))
        copies.append(_timed(lambda: _cat(journal, copy / "copy.jsonl")))
        return took
    finally:
        arena.leave(copy)


def _cat(source: Path, target: Path) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    subprocess.run(["cat", str(source)], stdout=fd, check=True)
    os.fsync(fd)
    os.close(fd)


def _timed(work: Callable[[], None]) -> float:
    os.sync()
    began = time.monotonic()
    work()
    return time.monotonic() - began

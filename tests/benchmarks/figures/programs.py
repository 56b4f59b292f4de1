"""Other processes: workers, commands, and programs that serve."""

from __future__ import annotations

import os
import sys
from functools import partial

from benchmarks.arena import Took
from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, at_most, missing

PROCESSES = 2
WIDTH = 4


def workers(bench: Bench) -> list[Row]:
    """The whole process, start and exit included. The pool keeps nothing; agentrun a checkpoint an item."""
    arena, total = bench.arena, bench.sizes.workers

    def ours() -> Took:
        place = arena.job(total, width=PROCESSES)
        job = place / "job.toml"
        job.write_text(job.read_text().replace(":answer", ":burn"))
        try:
            return arena.agentrun(place, total=total)
        finally:
            arena.leave(place)

    race = bench.race({OURS: ours, "pool": lambda: arena.module("pool", str(PROCESSES), total=total)})
    mine, pool = (race.spread(name, lambda took: took.seconds) for name in (OURS, "pool"))
    what = f"{PROCESSES} worker processes, {total:,} items of 10 ms of CPU: total time"
    return [at_most(what, mine, "`multiprocessing.Pool.imap`, chunk size 1", pool, 1.2, "≤ 1.2")]


def commands(bench: Bench) -> list[Row]:
    total = bench.sizes.commands
    ways = [OURS, "xargs", "parallel"] if bench.parallel else [OURS, "xargs"]
    race = bench.race(
        {way: partial(per_command, bench, way, total, width=WIDTH, program=bench.parallel) for way in ways}
    )
    ours, xargs = (race.spread(name, float) for name in (OURS, "xargs"))
    what = f"command agent `true`, `-j {WIDTH}`, time per item"
    rows = [at_most(what, ours, f"`xargs -P {WIDTH}`", xargs, 3, "≤ 3")]
    against, must = "GNU parallel `--joblog --resume`", "≤ 1/2"
    if race.has("parallel"):
        return [*rows, at_most(what, ours, against, race.spread("parallel", float), 1 / 2, must)]
    return [*rows, missing(what, against, must, race.spoiled.get("parallel", "not installed"), ours)]


def per_command(bench: Bench, way: str, total: int, *, width: int, program: str | None = None) -> float:
    """Seconds for each further item: the time of a run of `total`, less that of a run of one."""
    whole, one = (_run_commands(bench, way, count, width, program).seconds for count in (total, 1))
    return (whole - one) / (total - 1)


def _run_commands(bench: Bench, way: str, total: int, width: int, program: str | None) -> Took:
    arena = bench.arena
    if way == OURS:
        return bench.run_job(total, width=width, what='command = ["true"]')
    place = arena.place()
    argv = {
        "xargs": ["xargs", "-P", str(width), "-n", "1", "true"],
        "parallel": [program or way, "--will-cite", "-j", str(width), "--joblog", "jobs.log", "--resume", "true"],
    }[way]
    # It keeps what it learns of the machine at home, and starts each command by $SHELL: the quickest there is.
    environ = {"PARALLEL_HOME": str(arena.folder / "parallel"), "SHELL": "/bin/sh"}
    os.makedirs(environ["PARALLEL_HOME"], exist_ok=True)
    try:
        return arena.run(argv, place, total=total, environ=environ, stdin=arena.keys(total))
    finally:
        arena.leave(place)


def serve(bench: Bench) -> list[Row]:
    """The same program on both sides; the loop that feeds it writes each outcome as raw does."""
    total = bench.sizes.items
    what = f'command = ["{sys.executable}", "-m", "benchmarks.contenders.served"]\nserve = true'
    race = bench.race(
        {
            OURS: lambda: bench.run_job(total, what=what),
            "pipe": lambda: bench.arena.module("piped", total=total),
        }
    )
    ours, pipe = (race.spread(name, lambda took: took.per_item()) for name in (OURS, "pipe"))
    text = "`serve = true`, a cat-like program, time per item"
    return [at_most(text, ours, "the same, fed by a pipe, raw's durability", pipe, 1.5, "≤ 1.5")]

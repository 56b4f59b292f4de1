"""A start that finds everything as the last run left it, beside a resume that finds one item left."""

from __future__ import annotations

from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, at_most

WIDTH = 64
RESUME = f"{OURS} resume"


def unchanged(bench: Bench) -> list[Row]:
    """The whole process: of a start with nothing to run; of a resume, up to its first call, where it dies."""
    arena, total = bench.arena, bench.sizes.long
    finished, killed = arena.job(total, width=WIDTH), arena.job(total, width=WIDTH)
    bench.say(f"{total:,} items, to the end, and to be killed at the last")
    arena.agentrun(finished, total=total)
    arena.agentrun(killed, total=total, die_at=total - 1)
    race = bench.race(
        {
            OURS: lambda: arena.agentrun(finished, total=total),
            RESUME: lambda: arena.agentrun(killed, "resume", "job.toml", "-q", total=total, die_at=0),
        }
    )
    for place in (finished, killed):
        arena.leave(place)
    ours, theirs = (race.spread(name, lambda took: took.seconds) for name in (OURS, RESUME))
    return [at_most(f"{total:,} unchanged items: start", ours, "a resume, to its first item", theirs, 1.5, "≤ 1.5")]

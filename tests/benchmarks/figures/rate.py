"""Items a second, 64 at a time: against raw, the bare skeleton, and with a live view."""

from __future__ import annotations

from benchmarks.arena import Took
from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, Spread, as_rate, as_time, at_most, ratios

WIDTH = 64
WHAT = f"items/s, `-j {WIDTH}`, async function"
RAW_OVER_SECONDS = 0.5e-3


def rate(bench: Bench) -> list[Row]:
    arena, total = bench.arena, bench.sizes.rate
    race = bench.race(
        {
            OURS: lambda: bench.run_job(total, width=WIDTH),
            "raw": lambda: arena.module("limits", "raw", total=bench.sizes.items),
            "skeleton": lambda: arena.module("skeleton", "own", str(WIDTH), total=total),
            "bare-bones": lambda: arena.module("skeleton", "inline", str(WIDTH), total=total),
        }
    )
    ours, skeleton, bones = (
        race.spread(name, lambda took: 1 / took.per_item(WIDTH), as_rate) for name in (OURS, "skeleton", "bare-bones")
    )
    raw = race.spread("raw", lambda took: 1 / took.per_item(), as_rate)
    to_raw, to_skeleton = ratios(ours.values, raw.values), ratios(ours.values, skeleton.values)
    applies = 1 / raw.middle > RAW_OVER_SECONDS
    ok = to_raw.middle >= 15 if applies else None
    note = "" if applies else f"raw takes {as_time(1 / raw.middle)}"
    return [
        Row(WHAT, ours, "raw", raw, to_raw, "≥ 15 times raw's, where raw is over 0.5 ms", ok, note),
        Row(WHAT, ours, "the bare skeleton", skeleton, to_skeleton, "≥ 0.6", to_skeleton.middle >= 0.6),
        Row(WHAT, ours, "bare bones: a group commit of thirty lines", bones, ratios(ours.values, bones.values)),
    ]


def view(bench: Bench) -> list[Row]:
    """Both on a terminal, which is read as fast as it is written."""
    arena, total = bench.arena, bench.sizes.view

    def run(*flags: str) -> Took:
        place = arena.job(total, width=WIDTH)
        try:
            return arena.agentrun(place, "start", "job.toml", *flags, total=total, on_terminal=True)
        finally:
            arena.leave(place)

    race = bench.race({f"{OURS} with the bar": run, f"{OURS} -q": lambda: run("-q")})
    bar, quiet = (Spread([took.seconds for took in taken], as_time) for taken in race.taken.values())
    assert "\x1b[" in race.taken[f"{OURS} with the bar"][0].printed, "no bar was drawn"
    what = f"a run of {total:,} at full speed (`-j {WIDTH}`) with the live view"
    return [at_most(what, bar, "the same with `-q`", quiet, 1.1, "≤ 1.1")]

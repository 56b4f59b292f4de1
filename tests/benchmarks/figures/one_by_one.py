"""Time per item, one at a time: against what the disk allows, and against the peers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from benchmarks.arena import Took
from benchmarks.bench import OURS, Bench, Race
from benchmarks.figures.programs import per_command
from benchmarks.peers import DBOS, LANGGRAPH, PEERS, PREFECT
from benchmarks.table import Row, Spread, as_time, at_most, missing, ratios

WHAT = "time per item, `-j 1`"
LIMITS = {
    "append": "append + fdatasync",
    "sqlite": "SQLite WAL FULL",
    "statefile": "a loop that rewrites a growing state.json",
}
MOST = {LANGGRAPH.name: (0.7, "≤ 0.7"), DBOS.name: (1 / 4, "≤ 1/4"), PREFECT.name: (1 / 3, "≤ 1/3")}
EXTRA_SECONDS, RAW_UNDER_SECONDS = 250e-6, 1e-3


@cache
def everybody(bench: Bench) -> Race[Took]:
    """One race for both figures. In it are only those that are asked for."""
    total = bench.sizes.items
    contenders: dict[str, Callable[[], Took]] = {OURS: lambda: bench.run_job(total)}
    for way in ("raw", *LIMITS) if "item" in bench.chosen else ():
        contenders[way] = partial(bench.arena.module, "limits", way, total=total)
    if "peers" in bench.chosen:
        for peer in bench.peers.present():
            contenders[peer.name] = partial(bench.run_peer, peer, max(20, total // peer.share))
    return bench.race(contenders)


def item(bench: Bench) -> list[Row]:
    race = everybody(bench)
    ours, raw = (race.spread(name, lambda took: took.per_item()) for name in (OURS, "raw"))
    ratio = ratios(ours.values, raw.values)
    beyond = Spread([one - other for one, other in zip(ours.values, raw.values, strict=True)], as_time)
    ok = ratio.middle <= 1.3 or (raw.middle < RAW_UNDER_SECONDS and beyond.middle <= EXTRA_SECONDS)
    must = "≤ 1.3, or raw + 250 µs where raw is under 1 ms"
    rows = [Row(f"{WHAT}, async function", ours, "raw", raw, ratio, must, ok, f"beyond raw: {beyond}")]
    for way, against in LIMITS.items():
        theirs = race.spread(way, lambda took: took.per_item())
        rows.append(Row(WHAT, ours, against, theirs, ratios(ours.values, theirs.values)))
    return rows


def peers(bench: Bench) -> list[Row]:
    race, rows = everybody(bench), []
    ours = race.spread(OURS, lambda took: took.per_item())
    for peer in PEERS:
        most, must = MOST[peer.name]
        if why := bench.why_missing(race, peer.name):
            rows.append(missing(WHAT, peer.name, must, why, ours))
            continue
        theirs = race.spread(peer.name, lambda took: took.per_item())
        rows.append(at_most(WHAT, ours, f"{peer.name}, {race.taken[peer.name][0].total} items", theirs, most, must))
    if bench.parallel is None:
        return [*rows, Row(WHAT, ours, "GNU parallel", note="not installed")]
    program = bench.parallel
    total = max(20, bench.sizes.items // 10)
    taken = bench.race({"GNU parallel": lambda: per_command(bench, "parallel", total, width=1, program=program)})
    theirs = taken.spread("GNU parallel", float)
    against = "GNU parallel -j 1 --joblog --resume, a program an item"
    return [*rows, Row(WHAT, ours, against, theirs, ratios(ours.values, theirs.values))]

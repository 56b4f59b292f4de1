"""Long runs: does the cost of an item grow with progress, and what is written for each?"""

from __future__ import annotations

from functools import cache, partial

from benchmarks.arena import Took
from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, Spread, as_bytes, as_time, at_most

MOST_BYTES = {1: 12 * 1024, 64: 1024}


@cache
def runs(bench: Bench) -> dict[tuple[int, float], list[Took]]:
    """By how many at a time, and by percentage of failures; in the probe. One race for both figures."""

    def run(width: int, fails: float) -> Took:
        total = bench.sizes.long if width > 1 else bench.sizes.long_one_by_one
        place = bench.arena.job(total, width=width, fail_percent=fails)
        try:
            return bench.arena.agentrun(place, total=total, fail_percent=fails, probed=True)
        finally:
            bench.arena.leave(place)

    taken: dict[tuple[int, float], list[Took]] = {}
    # One at a time takes minutes: once.
    for width, rounds in ((1, 1), (64, bench.sizes.rounds_of_long)):
        kinds = {f"{OURS} -j {width}, {fails:g} % failing": (width, fails) for fails in (0.0, 5.0)}
        race = bench.race({name: partial(run, *kind) for name, kind in kinds.items()}, rounds=rounds)
        taken |= {kind: race.taken[name] for name, kind in kinds.items()}
    return taken


def flat(bench: Bench) -> list[Row]:
    rows = []
    for (width, fails), taken in runs(bench).items():
        failing = f", {fails:g} % scattered failures" if fails else ""
        what = f"time per settled item, last tenth of {taken[0].total:,}, `-j {width}`{failing}"
        first, last = (Spread([took.tenths[at] for took in taken], as_time) for at in (0, -1))
        rows.append(at_most(what, last, "the first tenth", first, 1.15, "≤ 1.15"))
    return rows


def written(bench: Bench) -> list[Row]:
    """By `write_bytes` of /proc/self/io: what the runner sent to the block layer, in whole pages, its log included.

    The output itself is the results file, once; what the journal holds of it counts as beyond.
    """
    rows = []
    for (width, fails), taken in runs(bench).items():
        if fails:
            continue
        most = MOST_BYTES[width]
        what = f"bytes written per item beyond the output, {taken[0].total:,} items, `-j {width}`"
        must = f"≤ {most // 1024} KiB"
        if not all(took.report.get("write_bytes") for took in taken):
            rows.append(Row(what, must=must, note="/proc/self/io does not count them here"))
            continue
        ours = Spread([_beyond(took, "write_bytes") for took in taken], as_bytes)
        handed = Spread([_beyond(took, "wchar") for took in taken], as_bytes)
        rows.append(Row(what, ours, must=must, ok=ours.middle <= most, note=f"handed to write(2): {handed}"))
    return rows


def _beyond(took: Took, counter: str) -> float:
    return float(took.report[counter] - took.report["results_bytes"]) / took.total

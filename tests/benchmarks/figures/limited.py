"""At a server that allows 20 requests a second: how much of that is used, and does an item fail?

Rates are by the server's own book: what it accepted, from the first request that came to the last accepted one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from benchmarks.arena import AGENTRUN, JOB, TESTS, Spoiled, Took
from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, ratios
from llm.limited import LimitedServer, serve_limited

ITEMS, WIDTH, PER_SECOND = 500, 64, 20.0
ANSWER_SECONDS = 0.2
SHARE = 0.85
RETRIES, KNOWS = "retries", "knows"


@dataclass(frozen=True)
class Asked:
    per_second: float
    refused: int
    failed: int


def limited(bench: Bench) -> list[Row]:
    """agentrun with its defaults. With a header, refusals ask for a second; without, nobody is told anything."""
    return [row for retry_after in ("1", None) for row in _race(bench, retry_after)]


def _race(bench: Bench, retry_after: str | None) -> list[Row]:
    ways = (OURS, RETRIES, KNOWS)
    with serve_limited(PER_SECOND, seconds=ANSWER_SECONDS, retry_after=retry_after) as server:
        asking = {way: partial(_ask, bench, way, server) for way in ways}
        race = bench.race(asking, rounds=bench.sizes.rounds_of_long)
    ours, retries, knows = (race.spread(way, lambda asked: asked.per_second, _as_rate) for way in ways)
    share = ratios(ours.values, knows.values)
    what = f"{ITEMS} items at {PER_SECOND:g}/s, `-j {WIDTH}`, " + ("Retry-After" if retry_after else "no Retry-After")
    refused, their_refused, failed = (
        _range(getattr(asked, name) for asked in race.taken[way])
        for way, name in ((OURS, "refused"), (RETRIES, "refused"), (RETRIES, "failed"))
    )
    return [
        Row(
            what,
            ours,
            "a client that knows the limit",
            knows,
            share,
            f"≥ {SHARE}, and none failed",
            share.middle >= SHARE,
            f"none failed, {refused} refusals",
        ),
        Row(
            what,
            ours,
            "plain retries: tenacity, 6 attempts",
            retries,
            ratios(ours.values, retries.values),
            note=f"{failed} of theirs failed, {their_refused} refusals",
        ),
    ]


def _ask(bench: Bench, way: str, server: LimitedServer) -> Asked:
    server.empty()
    took = _run(bench, way, {"BENCH_SERVER": server.url})
    accepted = server.accepted
    failed = 0 if way == OURS else int(took.printed.split()[-1])
    if len(accepted) + failed != ITEMS:
        raise Spoiled(f"{way}: {len(accepted)} requests accepted and {failed} items failed, of {ITEMS}")
    return Asked(len(accepted) / (accepted[-1].at - server.calls[0].at), server.refused, failed)


def _run(bench: Bench, way: str, environ: dict[str, str]) -> Took:
    arena = bench.arena
    place = arena.place()
    argv = [sys.executable, "-m", "benchmarks.contenders.limited", way, str(WIDTH), str(PER_SECOND), str(PER_SECOND)]
    if way == OURS:
        agents = os.path.relpath(TESTS / "benchmarks" / "asking.py", place)
        # No settings: an item that fails is exit 1, and spoils it.
        (place / "job.toml").write_text(
            f'name = "{JOB}"\nagent = "{agents}:Asking"\n[items]\njsonl = "../{arena.items(ITEMS).name}"\nkey = "id"\n'
        )
        argv = [AGENTRUN, "start", "job.toml", "-q", "-j", str(WIDTH)]
    try:
        return arena.run(argv, place, total=ITEMS, environ=environ)
    finally:
        arena.leave(place)


def _range(counts: Iterable[int]) -> str:
    least, *_, most = sorted([*counts] * 2)
    return str(least) if least == most else f"{least}…{most}"


def _as_rate(per_second: float) -> str:
    return f"{per_second:.1f}/s"

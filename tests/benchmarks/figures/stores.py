"""Time per item in other stores, beside the folder in the same run. The servers are on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from _pytest.outcomes import Failed, Skipped

from benchmarks.arena import Took
from benchmarks.bench import OURS, Bench
from benchmarks.table import Row, Spread, as_time, missing, ratios
from stores.moto_server import CREDENTIALS, serve_moto
from stores.postgres_server import serve_postgres
from stores.redis_server import serve_redis

WIDTH = 64
MOST, EXTRA_SECONDS, MOST_WIDE = 2.0, 1e-3, 1.2
OBJECTS, MOST_PUTS = "objects (moto)", 0.05
MUST = {1: "≤ 2, or 1 ms more", WIDTH: "≤ 1.2"}


def stores(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    puts: list[Callable[[], int]] = []
    with ExitStack() as servers:
        places, lacking = _places(servers, puts)
        for width, total in ((1, bench.sizes.items), (WIDTH, bench.sizes.rate)):
            what = f"time per item, `-j {width}`, in another store"
            contenders: dict[str, Callable[[], Took]] = {OURS: partial(bench.run_job, total, width=width)}
            for name, environ in places.items():
                contenders[name] = partial(_run_in, bench, environ, total, width)
            before = puts[0]() if puts else 0
            race = bench.race(contenders)
            folder = race.spread(OURS, lambda took, width=width: took.per_item(width))  # type: ignore[misc]
            for name in places:
                if name in race.spoiled:
                    rows.append(missing(f"{what}: {name}", "the folder", "", race.spoiled[name]))
                    continue
                taken = race.spread(name, lambda took, width=width: took.per_item(width))  # type: ignore[misc]
                rows.append(_row(f"{what}: {name}", taken, folder, width, must=name == "Postgres"))
            rows += [missing(f"{what}: {name}", "the folder", "", why) for name, why in lacking.items()]
            if race.has(OBJECTS):
                each = (puts[0]() - before) / len(race.taken[OBJECTS]) / total
                must = f"≤ {MOST_PUTS}" if width == WIDTH else ""
                rows.append(
                    Row(f"PUTs per item, `-j {width}`, objects", Spread([each]), must=must, ok=each <= MOST_PUTS)
                )
    return rows


def _row(what: str, taken: Spread, folder: Spread, width: int, *, must: bool) -> Row:
    ratio = ratios(taken.values, folder.values)
    beyond = Spread([one - other for one, other in zip(taken.values, folder.values, strict=True)], as_time)
    is_small = ratio.middle <= MOST or beyond.middle <= EXTRA_SECONDS
    ok = is_small if width == 1 else ratio.middle <= MOST_WIDE
    note = f"beyond the folder: {beyond}"
    return Row(what, taken, "the folder", folder, ratio, MUST[width] if must else "", ok, note)


def _run_in(bench: Bench, environ: dict[str, str], total: int, width: int) -> Took:
    place = bench.arena.job(total, width=width)
    name = f"bench-{secrets.token_hex(6)}"
    try:
        words = ("start", "job.toml", "-q", "--name", name)
        return bench.arena.agentrun(place, *words, total=total, environ=environ)
    finally:
        bench.arena.leave(place)


def _places(servers: ExitStack, puts: list[Callable[[], int]]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """What names each store to the command, and why the others are not there; `puts` gets a count of requests."""
    folder = Path(servers.enter_context(TemporaryDirectory(prefix="agentrun-stores-")))
    found: dict[str, dict[str, str]] = {"SQLite": {"AGENTRUN_STORE": f"sqlite:///{folder / 'jobs.db'}"}}
    lacking: dict[str, str] = {}
    for name, serve in (
        ("Postgres", _postgres),
        ("Redis", partial(_redis, folder)),
        (OBJECTS, partial(_objects, puts)),
    ):
        try:
            found[name] = servers.enter_context(serve())
        except (Skipped, Failed) as missed:
            lacking[name] = str(missed.msg)
    return found, lacking


@contextmanager
def _postgres() -> Iterator[dict[str, str]]:
    with serve_postgres() as server:
        yield {"AGENTRUN_STORE": server.url(server.make_database().name)}


@contextmanager
def _redis(folder: Path) -> Iterator[dict[str, str]]:
    with serve_redis(folder / "redis") as server:
        yield {"AGENTRUN_STORE": server.url()}


@contextmanager
def _objects(puts: list[Callable[[], int]]) -> Iterator[dict[str, str]]:
    with serve_moto() as server:
        puts.append(lambda: sum(one.method == "PUT" for one in server.requests))
        yield {"AGENTRUN_STORE": server.address("bench"), **CREDENTIALS}

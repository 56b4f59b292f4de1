"""Starts: of a run, to its first item; and of the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.arena import AGENTRUN, TESTS, Spoiled, Took
from benchmarks.bench import OURS, Bench, Race
from benchmarks.table import Row, Spread, as_time, at_most, missing, ratios


def first(bench: Bench) -> list[Row]:
    """From the start of the process to the first call of the work, where it dies: every round finds the same.

    Fresh: the peers' databases are there already, and migrated; agentrun's folder is not.
    Resumed: half of the items are done, and the process was killed.
    """
    fresh, resumed = _Starts(bench), _Starts(bench)
    races = {
        "fresh": bench.race({name: partial(fresh.begin, name) for name in fresh.names}),
        "resumed": bench.race({name: partial(resumed.go_on, name) for name in resumed.names}),
    }
    rows = []
    for how, race in races.items():
        what = f"start → first of {bench.sizes.first} items, {how}"
        ours = race.spread(OURS, lambda took: took.to_first)
        there = [peer.name for peer in bench.peers.present() if race.has(peer.name)]
        if not there:
            rows.append(missing(what, "the fastest of LangGraph, DBOS, Prefect", "≤ 1/2", _reasons(bench, race), ours))
            continue
        spreads = {name: race.spread(name, lambda took: took.to_first) for name in there}
        fastest = min(there, key=lambda name: spreads[name].middle)
        without = list(bench.peers.missing | race.spoiled)
        note = f"without {', '.join(without)}" if without else ""
        rows.append(at_most(what, ours, f"{fastest}, the fastest", spreads[fastest], 1 / 2, "≤ 1/2", note))
        for name in there:
            if name != fastest:
                rows.append(Row(what, ours, name, spreads[name], ratios(ours.values, spreads[name].values)))
    for place in (*fresh.places.values(), *resumed.places.values()):
        bench.arena.leave(place)
    return rows


def _reasons(bench: Bench, race: Race[Took]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in (bench.peers.missing | race.spoiled).items())


class _Starts:
    """Of agentrun and of each peer that there is: begun, or gone on with in the same place every time."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._arena, self._total = bench, bench.arena, bench.sizes.first
        self._peers = {peer.name: peer for peer in bench.peers.present()}
        self.names = [OURS, *self._peers]
        self.places: dict[str, Path] = {}

    def begin(self, name: str) -> Took:
        place = self._place(name)
        try:
            return self._start(name, place, die_at=0)
        finally:
            self._arena.leave(place)

    def go_on(self, name: str) -> Took:
        if name not in self.places:
            self.places[name] = self._place(name)
            self._start(name, self.places[name], die_at=self._total // 2)
        return self._start(name, self.places[name], die_at=0, resumes=True)

    def _place(self, name: str) -> Path:
        return self._arena.job(self._total) if name == OURS else self._bench.peer_place(self._peers[name])

    def _start(self, name: str, place: Path, *, die_at: int, resumes: bool = False) -> Took:
        if name == OURS:
            words = ("resume" if resumes else "start", "job.toml", "-q")
            return self._arena.agentrun(place, *words, total=self._total, die_at=die_at)
        peer = self._peers[name]
        argv = [self._bench.peers.python(peer), "-m", f"benchmarks.contenders.{peer.module}"]
        took = self._arena.run(argv + ["resume"] * resumes, place, total=self._total, die_at=die_at)
        if "first" not in took.marks:
            raise Spoiled(f"{name} did not come to an item")
        return took


def cli(bench: Bench) -> list[Row]:
    """The whole process. `status` has one interrupted job to tell of."""
    arena, total = bench.arena, 100
    place = arena.job(total)
    arena.agentrun(place, total=total, die_at=50)
    typer_app = str(TESTS / "benchmarks" / "contenders" / "typer_app.py")

    def command(*argv: str) -> Callable[[], Took]:
        return lambda: arena.run(argv, place, total=total)

    race = bench.race(
        {
            f"{OURS} status": command(AGENTRUN, "status"),
            f"{OURS} --help": command(AGENTRUN, "--help"),
            "typer": command(sys.executable, typer_app),
            "python": command(sys.executable, "-c", "pass"),
        },
        rounds=2 * bench.sizes.rounds,
    )
    arena.leave(place)
    times = {name: Spread([took.seconds for took in taken], as_time) for name, taken in race.taken.items()}
    app, status = "a typer app of one command", times[f"{OURS} status"]
    floor = ratios(status.values, times["python"].values)
    return [
        *(
            at_most(f"`{name}`", times[name], app, times["typer"], 1.5, "≤ 1.5")
            for name in times
            if name.startswith(OURS)
        ),
        Row("`agentrun status`", status, "`python -c pass`", times["python"], floor),
    ]

"""What a figure is measured with: the arena, the peers, how much of everything, and races in rounds.

**Interleaved.** Contenders of a race run in rounds, A B C A B C …, never A A A B B B: now and then a machine is slower
for a minute, and that should meet them all. Ratios are taken within a round.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from benchmarks.arena import Arena, Spoiled, Took
from benchmarks.peers import Peer, Peers, parallel
from benchmarks.table import Form, Spread, as_time

T = TypeVar("T")
OURS = "agentrun"


@dataclass(frozen=True)
class Sizes:
    """How many items, and how many rounds."""

    rounds: int = 7
    rounds_of_long: int = 3
    items: int = 2_000
    rate: int = 20_000
    long: int = 100_000
    long_one_by_one: int = 100_000
    million: int = 1_000_000
    first: int = 200
    view: int = 40_000
    workers: int = 1_000
    commands: int = 2_000


QUICK = Sizes(
    rounds=3,
    rounds_of_long=1,
    items=300,
    rate=5_000,
    long=10_000,
    long_one_by_one=3_000,
    million=100_000,
    first=60,
    view=10_000,
    workers=200,
    commands=300,
)


@dataclass(frozen=True)
class Race(Generic[T]):
    taken: dict[str, list[T]]
    spoiled: dict[str, str] = field(default_factory=dict)
    """Who dropped out, and why."""

    def spread(self, name: str, value: Callable[[T], float], form: Form = as_time) -> Spread:
        if name in self.spoiled:
            raise Spoiled(self.spoiled[name])
        return Spread([value(took) for took in self.taken[name]], form)

    def has(self, name: str) -> bool:
        return bool(self.taken.get(name)) and name not in self.spoiled


@dataclass(eq=False)
class Bench:
    arena: Arena
    peers: Peers
    sizes: Sizes
    chosen: Collection[str]
    say: Callable[[str], None] = lambda text: None
    parallel: str | None = field(default_factory=parallel)
    _primed: dict[str, Path] = field(default_factory=dict)

    def race(self, contenders: Mapping[str, Callable[[], T]], *, rounds: int | None = None) -> Race[T]:
        """One that fails drops out of the race. If it is ours, that is an error of the benchmark."""
        race: Race[T] = Race({name: [] for name in contenders})
        rounds = rounds or self.sizes.rounds
        for number in range(1, rounds + 1):
            for name, run in contenders.items():
                if name in race.spoiled:
                    continue
                self.say(f"round {number} of {rounds}: {name}")
                try:
                    race.taken[name].append(run())
                except Spoiled as error:
                    if name.startswith(OURS):
                        raise
                    race.spoiled[name] = str(error)
        return race

    def why_missing(self, race: Race[T], peer: str) -> str | None:
        """Why there is no figure of this peer, if there is none."""
        return self.peers.missing.get(peer) or race.spoiled.get(peer)

    def run_job(self, total: int, *, width: int = 1, fail_percent: float = 0.0, what: str | None = None) -> Took:
        """agentrun's command over a fresh job, to its end."""
        place = self.arena.job(total, width=width, fail_percent=fail_percent, what=what)
        try:
            return self.arena.agentrun(place, total=total, fail_percent=fail_percent)
        finally:
            self.arena.leave(place)

    def run_peer(self, peer: Peer, total: int) -> Took:
        place, python = self.peer_place(peer), self.peers.python(peer)
        took = self.arena.module(peer.module, total=total, python=python, place=place)
        if "last" not in took.marks:
            raise Spoiled(f"it came to {took.marks.get('calls', 0)} of {total} items: {took.printed[-200:]}")
        return took

    def peer_place(self, peer: Peer) -> Path:
        """A place where it has run before, over nothing: its database is made and migrated, which is done but once."""
        if peer.name not in self._primed:
            place = self.arena.place()
            argv = [self.peers.python(peer), "-m", f"benchmarks.contenders.{peer.module}"]
            self.arena.run(argv, place, total=0)
            self._primed[peer.name] = place
        return self.arena.copy(self._primed[peer.name])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

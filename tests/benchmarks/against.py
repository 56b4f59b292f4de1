"""This checkout against another commit: is it faster, and by how much?

    make bench AGAINST=main~3 ONLY=item,cli

Both sides are the real command, each in an environment of its own that is made the same way, over the same jobs and by
the same agent: those of this checkout, so that the other commit's own benchmark may be an older one, or none. The sides
take turns, A B A B …, and a ratio is taken within a round.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.arena import TESTS, Arena, Took
from benchmarks.bench import Sizes, say
from benchmarks.table import Form, Spread, as_rate, as_time, markdown, ratios

ROOT = TESTS.parent
WIDTH = 64
HEAD = ("figure", "this", "other", "this / other", "better is")


class CannotCompare(Exception):
    """There is no such commit, or it cannot be installed."""


@dataclass
class Side:
    """One of the two, with the places that it goes on with from round to round."""

    name: str
    command: str
    places: dict[str, Path] = field(default_factory=dict)


Measure = Callable[[Arena, Sizes, Side], float]


@dataclass(frozen=True)
class Figure:
    what: str
    measure: Measure
    form: Form = as_time
    better: str = "less"
    rounds: int = 1
    """How many times the usual number."""


# ---- what is measured


def _run_job(arena: Arena, side: Side, total: int, width: int) -> Took:
    place = arena.job(total, width=width)
    try:
        return arena.agentrun(place, total=total, command=side.command)
    finally:
        arena.leave(place)


def _time_per_item(arena: Arena, sizes: Sizes, side: Side) -> float:
    return _run_job(arena, side, sizes.items, 1).per_item()


def _rate(arena: Arena, sizes: Sizes, side: Side) -> float:
    return 1 / _run_job(arena, side, sizes.rate, WIDTH).per_item(WIDTH)


def _fresh_start(arena: Arena, sizes: Sizes, side: Side) -> float:
    place = arena.job(sizes.first)
    try:
        return arena.agentrun(place, total=sizes.first, die_at=0, command=side.command).to_first
    finally:
        arena.leave(place)


def _interrupted(arena: Arena, sizes: Sizes, side: Side) -> Path:
    """A job of this side, killed when half of its items were done."""
    if "interrupted" not in side.places:
        side.places["interrupted"] = place = arena.job(sizes.first)
        arena.agentrun(place, total=sizes.first, die_at=sizes.first // 2, command=side.command)
    return side.places["interrupted"]


def _resumed_start(arena: Arena, sizes: Sizes, side: Side) -> float:
    place, words = _interrupted(arena, sizes, side), ("resume", "job.toml", "-q")
    return arena.agentrun(place, *words, total=sizes.first, die_at=0, command=side.command).to_first


def _command(words: Sequence[str], arena: Arena, sizes: Sizes, side: Side) -> float:
    place = _interrupted(arena, sizes, side)
    return arena.run([side.command, *words], place, total=sizes.first).seconds


def figures(sizes: Sizes) -> dict[str, list[Figure]]:
    first = f"start → first of {sizes.first} items"
    return {
        "item": [Figure(f"time per item, `-j 1`, {sizes.items:,} items", _time_per_item)],
        "rate": [Figure(f"items/s, `-j {WIDTH}`, {sizes.rate:,} items", _rate, as_rate, "more")],
        "first": [Figure(f"{first}, fresh", _fresh_start), Figure(f"{first}, resumed", _resumed_start)],
        "cli": [
            Figure("`agentrun status`", partial(_command, ["status"]), rounds=2),
            Figure("`agentrun --help`", partial(_command, ["--help"]), rounds=2),
        ],
    }


NAMES = tuple(figures(Sizes()))


# ---- the two sides


def compare(commit: str, home: Path, arena: Arena, sizes: Sizes, only: Sequence[str]) -> str:
    """The table, in Markdown."""
    chosen = [figure for name in only for figure in figures(sizes)[name]]
    with _checked_out(commit, home) as (name, folder):
        this = Side(_git("describe", "--always", "--dirty"), _install(ROOT, home / "venv-this"))
        other = Side(name, _install(folder, home / f"venv-{name}"))
        rows = [_row(figure, this, other, arena, sizes) for figure in chosen]
    head = (
        f"- this is {this.name}, the other {other.name}; {sizes.rounds} rounds, in turns: median (least … most)\n"
        "- the ratio is taken within each round"
    )
    return f"{head}\n\n{markdown([HEAD, *rows])}"


def _row(figure: Figure, this: Side, other: Side, arena: Arena, sizes: Sizes) -> tuple[str, ...]:
    taken: dict[str, list[float]] = {"this": [], "other": []}
    rounds = figure.rounds * sizes.rounds
    # The first one compiles modules and fills caches, and does not count.
    for number in range(rounds + 1):
        for key, side in (("this", this), ("other", other)):
            say(f"{figure.what}: round {number or 'to warm up'} of {rounds}: {side.name}")
            value = figure.measure(arena, sizes, side)
            if number:
                taken[key].append(value)
    spreads = [Spread(values, figure.form) for values in taken.values()]
    return figure.what, str(spreads[0]), str(spreads[1]), str(ratios(taken["this"], taken["other"])), figure.better


@contextmanager
def _checked_out(commit: str, home: Path) -> Iterator[tuple[str, Path]]:
    """The short name of the commit, and a folder with it, which is removed again."""
    try:
        name = _git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise CannotCompare(f"there is no commit {commit} here: {error.stderr.strip()}") from error
    folder = home / f"commit-{name}"
    if not folder.exists():
        # Also where an earlier one was removed by hand, of which git still knows.
        _git("worktree", "add", "--force", "--detach", str(folder), name)
    try:
        yield name, folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _install(folder: Path, venv: Path) -> str:
    """The command, installed into an environment of its own; with the same versions of everything else."""
    say(f"installing {folder.name} into {venv.name}")
    try:
        if not (venv / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True, text=True)
        install = [str(ROOT / ".ci" / "install"), str(venv), "--editable", str(folder)]
        subprocess.run(install, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise CannotCompare(f"{folder.name} cannot be installed: {error.stderr[-1000:]}") from error
    return str(venv / "bin" / "agentrun")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()

"""agentrun beside the physical limit and beside what people would use instead: one table.

    make bench                          all figures; half an hour on two cores
    make bench QUICK=1                  few items and rounds: does it work, and roughly where is it?
    make bench ONLY=item,rate           these figures
    make bench AGAINST=main~3           beside another commit instead: item, rate, first and cli

The table goes to standard output, progress to standard error. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import against
from benchmarks.arena import TESTS, Arena, Spoiled
from benchmarks.bench import QUICK, Bench, Sizes, say
from benchmarks.figures import (
    clusters,
    limited,
    long,
    million,
    one_by_one,
    page,
    programs,
    rate,
    starts,
    stores,
    unchanged,
)
from benchmarks.machine import describe
from benchmarks.peers import Peers
from benchmarks.table import Row, render

FOLDER = TESTS.parent / ".bench"
FIGURES: dict[str, Callable[[Bench], list[Row]]] = {
    "item": one_by_one.item,
    "rate": rate.rate,
    "flat": long.flat,
    "peers": one_by_one.peers,
    "first": starts.first,
    "cli": starts.cli,
    "memory": million.memory,
    "resume": million.resume,
    "results": million.results,
    "unchanged": unchanged.unchanged,
    "bytes": long.written,
    "workers": programs.workers,
    "commands": programs.commands,
    "serve": programs.serve,
    "view": rate.view,
    "limited": limited.limited,
    "page": page.page,
    "stores": stores.stores,
    "clusters": clusters.clusters,
}
NEED_PEERS = {"peers", "first"}


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    if options.rounds:
        sizes = replace(sizes, rounds=options.rounds, rounds_of_long=min(options.rounds, sizes.rounds_of_long))
    home = Path(options.folder).resolve()
    home.mkdir(parents=True, exist_ok=True)
    if options.against:
        _compare(options, home, sizes)
        return
    peers = Peers(home, wanted=not options.no_peers and bool(NEED_PEERS & set(options.only)), say=say)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    try:
        arena = Arena(scratch, tell=lambda share: say(f"    {share:.0%}"))
        bench = Bench(arena, peers, sizes, options.only)
        head = _head(bench, options.quick)
        rows = [row for name in options.only for row in _figure(name, bench)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _tell(f"{head}\n\n{render(rows)}\n", options)


def _tell(text: str, options: argparse.Namespace) -> None:
    print(text, end="")
    if options.write:
        Path(options.write).write_text(text)


def _compare(options: argparse.Namespace, home: Path, sizes: Sizes) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=home))
    try:
        table = against.compare(options.against, home, Arena(scratch), sizes, options.only)
        head = "\n".join(f"- {line}" for line in describe(scratch))
    except (against.CannotCompare, Spoiled) as error:
        raise SystemExit(str(error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _tell(f"{head}\n{table}\n", options)


def _figure(name: str, bench: Bench) -> list[Row]:
    began = time.monotonic()
    bench.say = lambda text: say(f"{name}: {text}")
    try:
        rows = FIGURES[name](bench)
    except Exception as error:
        # The others took long, and are worth having.
        if not isinstance(error, Spoiled):
            traceback.print_exc()
        rows = [Row(name, must="to be measured", ok=False, note=f"{type(error).__name__}: {error}")]
    for row in rows:
        say(f"  {row.what}: {row.ours or ''} {row.ratio or ''} {row.verdict}")
    say(f"{name}: took {time.monotonic() - began:.0f} s")
    return rows


def _head(bench: Bench, is_quick: bool) -> str:
    sizes = bench.sizes
    lines = describe(bench.arena.folder)
    if versions := bench.peers.versions():
        lines.append(", ".join(versions))
    lines.append(f"{sizes.rounds} rounds, interleaved ({sizes.rounds_of_long} of the long ones): median (least … most)")
    if is_quick:
        lines.append(
            "**quick**: few items and rounds; where 100,000 or 1,000,000 are meant, the row says how many there were"
        )
    return "\n".join(f"- {line}" for line in lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few items and rounds")
    parser.add_argument("--against", metavar="COMMIT", help=f"another commit: {', '.join(against.NAMES)}")
    parser.add_argument("--only", type=_names, metavar="NAME,NAME", help=", ".join(FIGURES))
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of the usual number")
    parser.add_argument("--no-peers", action="store_true", help="without LangGraph, DBOS and Prefect")
    parser.add_argument("--folder", default=str(FOLDER), help="on the disk to measure; peers are installed there too")
    parser.add_argument("--write", metavar="FILE", help="the table goes here as well")
    options = parser.parse_args()
    options.only = options.only or list(against.NAMES if options.against else FIGURES)
    if options.against and (without := [name for name in options.only if name not in against.NAMES]):
        parser.error(f"against a commit there is no {', '.join(without)}; there are {', '.join(against.NAMES)}")
    return options


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in FIGURES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown) or 'name'}; there are {', '.join(FIGURES)}")
    return names


if __name__ == "__main__":
    main()

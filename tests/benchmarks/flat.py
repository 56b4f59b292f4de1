"""Does the cost of an item grow with progress? 10,000 items of 1 KB outputs, 5 % of them failing at scattered places.

    make flat        (or: .venv/bin/python tests/benchmarks/flat.py --items 100000 -j 64)

Prints the time per settled item in the first and in the last tenth of the run, their ratio, and the largest
`state.json` that was seen. Figures are ratios within one run: machines are noisy.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import agentrun
from agentrun.events import Began, Event, Progress

TENTHS = 10


async def produce(item: agentrun.Item) -> dict[str, str]:
    if item.data["fails"]:
        raise agentrun.Fail("this one fails")
    return {"text": item.data["id"] * 100}


class Meter:
    """Reads the clock at each tenth, and the size of state.json now and then."""

    def __init__(self, total: int, state: Path) -> None:
        self.marks = [time.perf_counter()]
        self.largest = 0
        self._total = total
        self._state = state
        self._progress: Progress | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Began):
            self._progress = event.progress
            self.marks = [time.perf_counter()]

    def look(self) -> None:
        if self._progress is None:
            return
        while self._progress.settled >= self._total * len(self.marks) // TENTHS and len(self.marks) <= TENTHS:
            self.marks.append(time.perf_counter())
        try:
            self.largest = max(self.largest, os.path.getsize(self._state))
        except FileNotFoundError:
            pass


def measure(total: int, concurrency: int, fail_percent: float) -> tuple[float, float, int]:
    """Seconds per item in the first and the last tenth, and the largest state.json in bytes."""
    chosen = random.Random(7)
    items: list[dict[str, Any]] = [
        {"id": f"item-{n:06}", "fails": chosen.random() * 100 < fail_percent} for n in range(total)
    ]
    meter = Meter(total, Path(".agentrun/flat/state.json"))
    calls = 0

    async def agent(item: agentrun.Item) -> dict[str, str]:
        nonlocal calls
        calls += 1
        if calls % 50 == 0:
            meter.look()
        return await produce(item)

    agentrun.run(
        agent,
        items=items,
        key="id",
        name="flat",
        concurrency=concurrency,
        allow_failures="100%",
        stop_after_failures=0,
        on_event=meter,
    ).check()
    meter.look()
    meter.marks += [time.perf_counter()] * (TENTHS + 1 - len(meter.marks))
    tenth = total / TENTHS
    return (meter.marks[1] - meter.marks[0]) / tenth, (meter.marks[-2] - meter.marks[-3]) / tenth, meter.largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("-j", "--concurrency", type=int, default=1)
    parser.add_argument("--fail-percent", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        first, last, largest = measure(options.items, options.concurrency, options.fail_percent)
        os.chdir("/")
    print(f"items {options.items}, -j {options.concurrency}, {options.fail_percent:g} % failing")
    print(f"first tenth  {first * 1e6:8.0f} µs an item")
    print(f"ninth tenth  {last * 1e6:8.0f} µs an item")
    print(f"ratio        {last / first:8.2f}")
    print(f"state.json   {largest / 1024:8.1f} KiB at most")


if __name__ == "__main__":
    main()

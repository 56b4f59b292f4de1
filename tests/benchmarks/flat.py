"""Does the cost of an item grow with progress? 10,000 items, 5 % of them failing at scattered places.

    make flat        (or: PYTHONPATH=tests .venv/bin/python -m benchmarks.flat --items 100000 -j 64)

Prints the time per settled item in the first and in the last tenth of a run of the real command, their ratio, and the
largest `state.json` that was seen. `make bench ONLY=flat` is the same in rounds, with a verdict.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from pathlib import Path

from benchmarks.arena import JOB, Arena


class Largest:
    """The largest size that a file was seen with, while the block ran."""

    def __init__(self, path: Path) -> None:
        self.bytes = 0
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Largest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            try:
                self.bytes = max(self.bytes, os.path.getsize(self._path))
            except FileNotFoundError:
                pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("-j", "--concurrency", type=int, default=1)
    parser.add_argument("--fail-percent", type=float, default=5.0)
    options = parser.parse_args()
    total, fails = options.items, options.fail_percent
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder))
        place = arena.job(total, width=options.concurrency, fail_percent=fails)
        with Largest(place / ".agentrun" / JOB / "state.json") as largest:
            tenths = arena.agentrun(place, total=total, fail_percent=fails).tenths
    first, last = tenths[0], tenths[-1]
    print(f"items {total}, -j {options.concurrency}, {fails:g} % failing")
    print(f"first tenth  {first * 1e6:8.0f} µs an item")
    print(f"last tenth   {last * 1e6:8.0f} µs an item")
    print(f"ratio        {last / first:8.2f}")
    print(f"state.json   {largest.bytes / 1024:8.1f} KiB at most")


if __name__ == "__main__":
    main()

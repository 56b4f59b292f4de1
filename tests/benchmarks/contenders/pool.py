"""multiprocessing.Pool.imap with chunk size 1: 10 ms of CPU an item, and nothing kept.

python -m benchmarks.contenders.pool PROCESSES
"""

from __future__ import annotations

import multiprocessing
import sys

from benchmarks import work


def main() -> None:
    with multiprocessing.Pool(int(sys.argv[1])) as pool:
        for _ in pool.imap(work.burn, work.read_items(work.source()), chunksize=1):
            pass


if __name__ == "__main__":
    main()

"""json.loads of each line of the source. Prints its seconds, without the start of Python.

python -m benchmarks.contenders.jsonlines
"""

from __future__ import annotations

import time

from benchmarks import work


def main() -> None:
    began = time.monotonic()
    for _ in work.read_items(work.source()):
        pass
    print(time.monotonic() - began)


if __name__ == "__main__":
    main()

"""A cat-like program for `serve = true`: an item a line in, an outcome a line out, with nothing between.

python -m benchmarks.contenders.served
"""

from __future__ import annotations

import json
import sys

from benchmarks import work


def main() -> None:
    for line in sys.stdin.buffer:
        item = json.loads(line)
        output = work.produce(item["data"])
        # An item of an older version, which `--against` measures, has no id.
        sys.stdout.buffer.write(json.dumps({"type": "done", "id": item.get("id"), "output": output}).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""The program of `served.py`, fed by a pipe in a loop: a line to it, a line from it, and that written as raw does.

python -m benchmarks.contenders.piped
"""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks import work
from benchmarks.contenders.limits import Replaced, record


def main() -> None:
    file = Replaced("raw.json")
    program = [sys.executable, "-m", "benchmarks.contenders.served"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for data in work.read_items(work.source()):
            process.stdin.write(json.dumps({"type": "item", "data": data}).encode() + b"\n")
            process.stdin.flush()
            file.write(record(json.loads(process.stdout.readline())["output"]))
        process.stdin.close()


if __name__ == "__main__":
    main()

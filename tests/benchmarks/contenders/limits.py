"""What the disk allows: one durable write an item, in the plainest ways, and nothing else.

    python -m benchmarks.contenders.limits raw|append|sqlite|statefile

| way | for each item |
|---|---|
| raw | ~300 bytes to a temporary file, fsync, rename, fsync of the folder (held open) |
| append | ~300 bytes at the end of one file, fdatasync |
| sqlite | one INSERT and COMMIT, WAL, synchronous=FULL |
| statefile | what people write themselves: all outputs so far, as raw writes them; its cost grows with progress |

Each reads its items from the same jsonl, a line at a time, and makes the same output.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import work

Write = Callable[[dict[str, Any]], None]


class Replaced:
    """A file that is replaced as a whole: temporary, fsync, rename, fsync of the folder."""

    def __init__(self, name: str) -> None:
        self._name, self._temporary = name, f".{name}.tmp"
        self._folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)

    def write(self, text: bytes) -> None:
        fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, text)
        os.fsync(fd)
        os.close(fd)
        os.replace(self._temporary, self._name)
        os.fsync(self._folder)


def record(output: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "done", "key": output["id"], "seconds": 0.001, "output": output}).encode() + b"\n"


def raw() -> Write:
    file = Replaced("raw.json")
    return lambda output: file.write(record(output))


def append() -> Write:
    fd = os.open("append.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # macOS has no fdatasync.
    sync = getattr(os, "fdatasync", os.fsync)

    def write(output: dict[str, Any]) -> None:
        os.write(fd, record(output))
        sync(fd)

    return write


def sqlite() -> Write:
    connection = sqlite3.connect("items.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE done (key TEXT PRIMARY KEY, record BLOB)")

    def write(output: dict[str, Any]) -> None:
        connection.execute("INSERT INTO done VALUES (?, ?)", (output["id"], record(output)))

    return write


def statefile() -> Write:
    file, state = Replaced("state.json"), {}

    def write(output: dict[str, Any]) -> None:
        state[output["id"]] = output
        file.write(json.dumps(state).encode())

    return write


WAYS = {"raw": raw, "append": append, "sqlite": sqlite, "statefile": statefile}


def main() -> None:
    write = WAYS[sys.argv[1]]()
    for data in work.read_items(work.source()):
        write(work.produce(data))


if __name__ == "__main__":
    main()

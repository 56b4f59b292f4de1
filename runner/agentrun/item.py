"""An item: one unit of work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

KEY_LIMIT_BYTES = 1024


@dataclass(frozen=True)
class Item:
    """`key` is its identity, `index` its position now.

    It has `data` (a record of a jsonl or csv, or a dict), or `path` (absolute), or `text` (a line). The text of an
    item with a path is the file's content.
    """

    index: int
    key: str
    data: Any = None
    path: Path | None = None
    line: str | None = None

    @cached_property
    def text(self) -> str:
        if self.line is not None:
            return self.line
        if self.path is not None:
            return self.path.read_text(encoding="utf-8", errors="replace")
        if isinstance(self.data, str):
            return self.data
        import orjson

        return orjson.dumps(self.data).decode()

    def __getitem__(self, field: str) -> Any:
        return self.data[field]


def key_digest(key: str) -> bytes:
    """16 bytes that stand for a key in memory."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()

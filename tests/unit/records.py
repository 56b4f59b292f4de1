"""Records for tests, filled in where a test does not care."""

from __future__ import annotations

from typing import Any

import orjson
from msgspec import Raw

from agentrun.checkpoint.record import Kind, Record

_ABSENT = object()


def make_record(key: str = "a", kind: Kind = "done", output: Any = _ABSENT, **fields: Any) -> Record:
    """A record of the key's first generation; `output` is the value itself."""
    known = {"gen": 0, "index": 0, "hash": "00000000000000aa", "agent": "v1", "launch": 1, **fields}
    if output is not _ABSENT:
        known["output"] = Raw(orjson.dumps(output))
    return Record(kind=kind, key=key, **known)

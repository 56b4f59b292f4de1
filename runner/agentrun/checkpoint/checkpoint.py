"""The checkpoint: what state.json says, and its form on disk.

A field a line, so that a person can read it; `check` is last, a hash of every byte before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from agentrun.checkpoint.record import RecordError, check_record, seal_record
from agentrun.errors import CheckpointError

VERSION = 1
_CHECK = b'"check": "'
_END = b'"\n}\n'
_FIELDS = [
    "job",
    "run_id",
    "seq",
    "last_completed",
    "total",
    "counts",
    "done",
    "failed",
    "waiting",
    "running",
    "outputs",
    "journal",
    "context",
    "usage",
    "started_at",
    "updated_at",
]


@dataclass(slots=True)
class Checkpoint:
    """The position, the recent outputs, the run's context. `outputs` holds encoded records."""

    job: str
    run_id: str
    seq: int = 0
    last_completed: int = -1
    total: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    done: list[list[int]] = field(default_factory=list)
    failed: list[list[int]] = field(default_factory=list)
    waiting: list[list[int]] = field(default_factory=list)
    running: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    journal_name: str = ""
    journal_length: int = 0
    context: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    started_at: str = ""
    updated_at: str = ""


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    dumps = orjson.dumps
    c = checkpoint
    outputs = b"[\n%b\n]" % b",\n".join(c.outputs) if c.outputs else b"[]"
    text = (
        b'{\n"version": %d,\n"job": %b,\n"run_id": %b,\n"seq": %d,\n"last_completed": %d,\n"total": %d,\n'
        b'"counts": %b,\n"done": %b,\n"failed": %b,\n"waiting": %b,\n"running": %b,\n"outputs": %b,\n'
        b'"journal": %b,\n"context": %b,\n"usage": %b,\n"started_at": %b,\n"updated_at": %b,\n'
    ) % (
        VERSION,
        dumps(c.job),
        dumps(c.run_id),
        c.seq,
        c.last_completed,
        c.total,
        dumps(c.counts),
        dumps(c.done),
        dumps(c.failed),
        dumps(c.waiting),
        dumps(c.running),
        outputs,
        dumps({"name": c.journal_name, "length": c.journal_length}),
        dumps(c.context),
        dumps(c.usage),
        dumps(c.started_at),
        dumps(c.updated_at),
    )
    return text + _CHECK + _hash(text) + _END


def decode_checkpoint(text: bytes, *, where: str, accept_edits: bool = False) -> Checkpoint:
    """Read state.json. What is not exactly as it was written raises CheckpointError, unless edits are accepted."""
    values = _parse(text, where)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"{where}: is of version {version}, and this agentrun reads up to {VERSION}; "
            f"use the newer agentrun that wrote it"
        )
    intact = text.endswith(_END) and _is_sealed(text)
    if not intact and not accept_edits:
        raise CheckpointError(
            f"{where}: was changed since agentrun wrote it (its check does not match); put the original back, "
            f"or if you edited it on purpose add --accept-edits, or begin anew with --fresh"
        )
    try:
        outputs = _outputs_as_written(text) if intact else None
        return _build(values, outputs)
    except (_Wrong, RecordError) as error:
        raise CheckpointError(
            f"{where}: {error}; put the original back, or begin anew with --fresh (the old one is kept)"
        ) from None


def _hash(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).hexdigest().encode()


def _is_sealed(text: bytes) -> bool:
    at = text.rfind(_CHECK)
    return at > 0 and text[at + len(_CHECK) : -len(_END)] == _hash(text[:at])


def _parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        what = "is empty" if not text else f"is not JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        raise CheckpointError(
            f"{where}: {what}; put the original back, or begin anew with --fresh (the old one is kept)"
        ) from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{where}: holds {type(values).__name__}, not an object; put the original back")
    return values


class _Wrong(ValueError):
    pass


def _build(values: dict[str, Any], outputs: list[bytes] | None) -> Checkpoint:
    """Of an edited one, `outputs` is None: its records are checked for their form and sealed again."""
    missing = [name for name in ("version", *_FIELDS) if name not in values]
    if missing:
        raise _Wrong(f"has no {missing[0]}")
    _expect(values, "version", lambda v: _is_count(v) and v == VERSION, f"{VERSION}")
    for name in ("job", "run_id", "started_at", "updated_at"):
        _expect(values, name, lambda v: isinstance(v, str), "text")
    # It is part of file names.
    _expect(values, "run_id", lambda v: bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", v)), "letters, digits and -")
    for name in ("seq", "total"):
        _expect(values, name, _is_count, "a whole number, 0 or more")
    _expect(values, "last_completed", lambda v: _is_count(v + 1) if isinstance(v, int) else False, "-1 or more")
    for name in ("counts", "journal", "context", "usage"):
        _expect(values, name, lambda v: isinstance(v, dict), "an object")
    for name in ("done", "failed", "waiting"):
        _expect(values, name, _is_ranges, "a list of [first, last]")
    _expect(values, "running", _is_running, "a list of objects with index and key")
    _expect(
        values,
        "outputs",
        lambda v: isinstance(v, list) and all(isinstance(r, dict) for r in v),
        "a list of records",
    )
    journal = values["journal"]
    name, length = journal.get("name"), journal.get("length")
    if not (isinstance(name, str) and "/" not in name and name.startswith("journal-") and _is_count(length)):
        raise _Wrong(f"journal is {journal!r}; it names a journal-<n>.jsonl and its length")
    _check_context(values["context"])
    if outputs is None:
        outputs = [seal_record(record) for record in values["outputs"]]
    return Checkpoint(
        **{field: values[field] for field in _FIELDS if field not in ("outputs", "journal")},
        outputs=outputs,
        journal_name=name,
        journal_length=length,
    )


def _outputs_as_written(text: bytes) -> list[bytes]:
    """The records' own bytes: written anew, another JSON text of the same value would not fit their checksums."""
    _, found, rest = text.partition(b'\n"outputs": [\n')
    if not found:
        return []
    lines = rest.partition(b"\n],\n")[0].split(b",\n")
    for number, line in enumerate(lines):
        if not check_record(line):
            raise RecordError(f"record {number} in outputs has a wrong checksum")
    return lines


def _check_context(context: Mapping[str, Any]) -> None:
    for name, good, what in (
        ("launches", _is_count, "a whole number, 0 or more"),
        ("date", lambda v: isinstance(v, str), "text"),
    ):
        if name not in context:
            raise _Wrong(f"context has no {name}")
        _expect(context, name, good, what, where="context.")
    for name, good, what in (
        ("gone", _is_count, "a whole number, 0 or more"),
        ("spool", lambda v: isinstance(v, str) and "/" not in v and v.endswith(".spool"), "the name of a spool"),
        ("deaths", _is_counts, "an object of whole numbers"),
        ("versions", _is_counts, "an object of whole numbers"),
        ("identity", lambda v: isinstance(v, dict), "an object"),
        ("kept", lambda v: isinstance(v, dict), "an object"),
        ("agent", lambda v: isinstance(v, str), "text"),
    ):
        if name in context:
            _expect(context, name, good, what, where="context.")


def _expect(values: Mapping[str, Any], name: str, good: Callable[[Any], bool], what: str, *, where: str = "") -> None:
    if not good(values[name]):
        raise _Wrong(f"{where}{name} is {orjson.dumps(values[name])[:60].decode(errors='replace')}; it is {what}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_count(count) for count in value.values())


def _is_ranges(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(r, list) and len(r) == 2 and _is_count(r[0]) and _is_count(r[1]) and r[0] <= r[1] for r in value
    )


def _is_running(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(r, dict) and _is_count(r.get("index")) and isinstance(r.get("key"), str) for r in value
    )

"""The results of a job as anyone may read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import to_builtins

from agentrun.outputs.results import result_line
from agentrun.store.port import Store
from agentrun.values.clock import time_text
from agentrun.values.json import decode, encode
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing

_PIECE_BYTES = 1 << 18


def read_output(store: Store) -> Iterator[bytes] | None:
    """The output of a finished run byte for byte, in pieces of whole lines, if it is still what the run wrote.

    None for one that is not JSON lines.
    """
    with store.reader() as reader:
        output = reader.summary.output if reader.summary is not None else None
    if output is None or output.form != "jsonl":
        return None
    try:
        file = Path(output.path).open("rb")  # noqa: SIM115
    except OSError:
        return None
    if hashlib.file_digest(file, "sha256").hexdigest() != output.sha256:
        file.close()
        return None

    def pieces() -> Iterator[bytes]:
        # The same open file: what was checked is what is given.
        with file:
            file.seek(0)
            while piece := file.read(_PIECE_BYTES) + file.readline():
                yield piece

    return pieces()


def result_lines(listing: Listing, *, full: bool = False) -> Iterator[bytes]:
    """A line for each item that is done, in item order; with `full`, also what may differ from run to run."""
    for item in listing.items({"done"}):
        assert item.record is not None
        line = result_line(item.index, item.record)
        yield _full_line(item, line) if full else line


def _full_line(item: ItemView, line: bytes) -> bytes:
    """The result with what may differ from one run to the next; the last of it only where it is there."""
    record = item.record
    assert record is not None
    facts = decode(line) | {
        "at": time_text(item.at),
        "seconds": item.seconds,
        "attempts": item.attempts,
        "agent": item.agent,
        "launch": record.launch,
        "generation": record.gen,
    }
    if item.cost is not None:
        facts["cost"] = item.cost
    if item.usage is not None:
        facts["usage"] = item.usage.as_json()
    if item.edited is not None:
        facts["edited"] = to_builtins(item.edited)
    if record.warning:
        facts["warning"] = record.warning
    return encode(facts) + b"\n"

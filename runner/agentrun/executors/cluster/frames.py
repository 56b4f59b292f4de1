"""The frames between the runner and a host, over a tube.

A frame is a JSON object and, where it has any, its parts: named bytes, such as an output or an archive of files.

    host → up        what it is: versions, its place
    runner → hello   the job and its agent, secrets, how to find out whether the host sees the job's folder
    host → wants     the job's folder, because it does not see it
    runner → folder  an archive of it
    host → ready     or refused, with the reason
    host → ping      at any time; runner → pong
    both ↔ taken     how much has arrived; this and the line above go first (`lanes.py`)
    runner → attempt one attempt, with its id
    host → say       a message of the attempt's channel; runner → answer
    host → log       what the attempt has printed since
    runner → end     end the attempt
    host → outcome   how it ended
    runner → sweep   end another host of the same machine, and all that it started; host → swept: nothing is left
    runner → recall  give back the attempts that have not begun; rest: end idle workers; close: the end

Everything about an attempt carries its id; what is about an attempt that is not in flight is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentrun.executors.workers.frames import HEADER, pack, unpack

VERSION = 1
"""Raised when a host of an older version would do harm."""


class HostFrame(NamedTuple):
    value: Mapping[str, Any]
    parts: Mapping[str, bytes]

    @property
    def type(self) -> str:
        return str(self.value["type"])


def make_frame(kind: str, parts: Mapping[str, bytes] | None = None, /, **fields: Any) -> bytes:
    """A frame; parts that are empty are left out."""
    if not parts:
        return pack({"type": kind, **fields})
    sizes = {name: len(part) for name, part in parts.items() if part}
    return pack({"type": kind, **fields, "parts": sizes}, b"".join(parts.values()))


class Cutter:
    """Cuts frames out of pieces of a stream."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: bytes) -> Iterator[HostFrame]:
        self._data += piece
        while len(self._data) >= HEADER.size:
            kind, size, rest = HEADER.unpack_from(self._data)
            middle = HEADER.size + size
            end = middle + rest
            if len(self._data) < end:
                return
            value = unpack(kind, self._data[HEADER.size : middle], b"").value
            parts, at = {}, middle
            for name, length in value.get("parts", {}).items():
                parts[name] = bytes(self._data[at : at + length])
                at += length
            del self._data[:end]
            yield HostFrame(value, parts)

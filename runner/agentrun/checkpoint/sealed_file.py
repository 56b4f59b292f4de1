"""A sealed file, written and read as a stream: side files of a sealed job, and export files.

    magic and version, id of the key, id of this writing (16 random bytes), then chunks:
    is it the last (1 byte), length (4 bytes), the sealed chunk

Each chunk is bound to all of the above and to its number. So chunks cannot be left out, added, put in another order, or
mixed with those of an older file of the same name.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator

from agentrun.checkpoint.sealing import OVERHEAD_BYTES, RESTORE, Keyring, changed, check_version, not_sealed

CHUNK_BYTES = 1 << 20
# The first byte begins no text: what people feed to a job does not look sealed by chance.
_MAGIC = b"\x89agentrun sealed "
_VERSION = 1
_START = re.compile(re.escape(_MAGIC) + rb"(\d{4})\n([0-9a-f]{8})\n")
START_BYTES = len(_MAGIC) + 5 + 9
"""How many of its first bytes say whether a file is sealed."""
_ID_BYTES = 16
_FRAME = struct.Struct(">?I")


def seal_file(ring: Keyring, chunks: Iterable[bytes], bound_to: bytes) -> Iterator[bytes]:
    """The sealed file, in pieces of up to about CHUNK_BYTES."""
    start = b"%b%04d\n%b\n%b" % (_MAGIC, _VERSION, ring.first.encode(), os.urandom(_ID_BYTES))
    bound_to += start
    yield start
    gathered, number = bytearray(), 0
    for chunk in chunks:
        gathered += chunk
        while len(gathered) > CHUNK_BYTES:
            yield _seal(ring, bytes(gathered[:CHUNK_BYTES]), bound_to, number, is_last=False)
            del gathered[:CHUNK_BYTES]
            number += 1
    yield _seal(ring, bytes(gathered), bound_to, number, is_last=True)


def _seal(ring: Keyring, chunk: bytes, bound_to: bytes, number: int, *, is_last: bool) -> bytes:
    sealed = ring.seal(chunk, bound_to + _place(number, is_last))
    return _FRAME.pack(is_last, len(sealed)) + sealed


def _place(number: int, is_last: bool) -> bytes:
    return b"%d:%d" % (number, is_last)


def open_sealed(
    ring: Keyring, chunks: Iterable[bytes], bound_to: bytes, *, where: str, what_to_do: str = RESTORE
) -> Iterator[bytes]:
    """What was sealed, from the sealed bytes in chunks of any size.

    What it yields is as it was sealed; that all of it is there is known only when it has come to its end without
    CheckpointError.
    """
    source = _Source(chunks)
    start = source.take(START_BYTES)
    found = _START.fullmatch(start)
    if found is None:
        raise not_sealed(where)
    check_version(int(found[1]), where)
    bound_to += start + source.take(_ID_BYTES)
    number, is_last = 0, False
    while not is_last:
        frame = source.take(_FRAME.size)
        if len(frame) < _FRAME.size:
            raise changed(where, what_to_do)
        is_last, length = _FRAME.unpack(frame)
        if frame[0] > 1 or length > CHUNK_BYTES + OVERHEAD_BYTES:
            raise changed(where, what_to_do)
        sealed, place = source.take(length), bound_to + _place(number, is_last)
        if len(sealed) < length:
            raise changed(where, what_to_do)
        yield ring.open(found[2].decode(), sealed, place, where=where, what_to_do=what_to_do)
        number += 1
    if source.take(1):
        raise changed(where, what_to_do)


def key_of_file(start: bytes) -> str | None:
    """The id of the key that a file is sealed with, by its first START_BYTES; None if it is not sealed."""
    found = _START.match(start)
    return found[2].decode() if found is not None else None


class _Source:
    """The bytes of some chunks, taken as many at a time as are wanted."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._ahead = bytearray()

    def take(self, size: int) -> bytes:
        """So many bytes; fewer at the end."""
        while len(self._ahead) < size and (chunk := next(self._chunks, None)) is not None:
            self._ahead += chunk
        taken = bytes(self._ahead[:size])
        del self._ahead[:size]
        return taken

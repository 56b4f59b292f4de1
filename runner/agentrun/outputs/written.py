"""The list of files that a job wrote into a folder, which its store keeps: only these are ever replaced or removed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from agentrun.store.port import Store
from agentrun.system.disk import PIECE_BYTES


class Entry(msgspec.Struct, frozen=True):
    """A file that is ours as long as it has this hash."""

    name: str
    sha256: str


_decode = msgspec.json.Decoder(Entry).decode
_encode = msgspec.json.Encoder().encode


class WrittenList:
    """The list of one folder. Without a store nothing is kept, and nothing is ours."""

    def __init__(self, store: Store | None, folder: Path) -> None:
        self._store = store
        self.name = ""
        """Under which the store keeps it."""
        if store is not None:
            # As seen from the state, so that both can be moved together.
            seen = os.path.relpath(folder, store.folder) if store.folder is not None else str(folder)
            self.name = f"{blake2b(os.fsencode(seen), digest_size=8).hexdigest()}.written"

    def __iter__(self) -> Iterator[Entry]:
        """The entries, oldest first. A file may have several, of which any may be what is there."""
        pieces = self._store.fetch(self.name) if self._store is not None else None
        left = b""
        for piece in pieces or ():
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                try:
                    yield _decode(line)
                except ValueError:
                    continue  # of what it named we cannot say that it is ours

    def replace(self, entries: Iterable[Entry]) -> None:
        """The list names these from now on, durably."""
        pieces = _pieces(entries)
        if self._store is not None:
            self._store.keep(self.name, pieces)
        else:
            for _ in pieces:
                pass


def _pieces(entries: Iterable[Entry]) -> Iterator[bytes]:
    piece = bytearray()
    for entry in entries:
        piece += _encode(entry) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)

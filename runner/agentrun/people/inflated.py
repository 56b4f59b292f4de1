"""A tar.gz as it is read, from its beginning to its end, whoever made it.

Nothing is taken from it but plain files: no links, devices or folders. No more is inflated than is asked for, and
headers are small: `tarfile`, which reads those of any size into memory, parses single blocks only.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentrun.errors import CheckpointError, UsageError

BLOCK = 512
GZIP = 16 + zlib.MAX_WBITS
"""What zlib calls the form of gzip."""
_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
_EXTENDED_MOST_BYTES = 16 << 10
_SIZE = re.compile(r"[0-9]{1,18}")
_ZEROS_MOST_BYTES = 20 * BLOCK
"""How much may fill up the end of a tar."""


@dataclass(frozen=True, slots=True)
class Header:
    """A plain file in the tar."""

    name: str
    size: int


class Inflated:
    """The tar inside of compressed bytes. `where` names the file in messages; CheckpointError for all that is wrong."""

    def __init__(self, pieces: Iterable[bytes], where: str) -> None:
        self._pieces = iter(pieces)
        self._where = where
        self._inflate = zlib.decompressobj(wbits=GZIP)
        self._waiting = b""
        while len(self._waiting) < len(_MAGIC) and (more := next(self._pieces, b"")):
            self._waiting += more
        if not self._waiting.startswith(_MAGIC):
            raise not_an_export(where)

    def first_header(self) -> Header:
        """UsageError if this is no tar."""
        block = b""
        while len(block) < BLOCK and (piece := self._read(BLOCK - len(block), "at its beginning")):
            block += piece
        try:
            info = _parse(block)
        except tarfile.HeaderError:
            raise not_an_export(self._where) from None
        return self._header(info, "at its beginning")

    def header(self, place: str) -> Header | None:
        """The next file; None at the end of the tar. `place` is where that is, in words."""
        block = self._exactly(BLOCK, place)
        if not any(block):
            return None
        return self._header(self._parse(block, place), place)

    def _header(self, info: tarfile.TarInfo, place: str) -> Header:
        name, size = info.name, info.size
        if info.type == tarfile.XHDTYPE:
            if not 0 <= size <= _EXTENDED_MOST_BYTES:
                raise damaged(self._where, f"a header of {size:,} bytes, {place}")
            extended = self._extended(b"".join(self.content(size, of="a header")), place)
            info = self._parse(self._exactly(BLOCK, place), place)
            name, size = extended.get("path", info.name), int(extended.get("size", info.size))
        if not info.isreg() or info.issparse() or size < 0:
            raise damaged(self._where, f"{name!r} is not a plain file")
        return Header(name, size)

    def _parse(self, block: bytes, place: str) -> tarfile.TarInfo:
        try:
            return _parse(block)
        except tarfile.HeaderError:
            raise damaged(self._where, f"a header cannot be read, {place}") from None

    def _extended(self, text: bytes, place: str) -> dict[str, str]:
        """The records `<length> <name>=<value>` of an extended header."""
        found: dict[str, str] = {}
        try:
            while text:
                length = int(text[: text.index(b" ")])
                record = text[text.index(b" ") + 1 : length - 1].decode()
                if length <= 3 or text[length - 1 : length] != b"\n":
                    raise ValueError
                name, _, value = record.partition("=")
                found[name], text = value, text[length:]
            if not _SIZE.fullmatch(found.get("size", "0")):
                raise ValueError
        except ValueError:
            raise damaged(self._where, f"a header cannot be read, {place}") from None
        return found

    def content(self, size: int, *, of: str) -> Iterator[bytes]:
        """The next `size` bytes, and what fills up their last block."""
        left = size
        while left:
            piece = self._some(min(left, _PIECE_BYTES), f"in {of}")
            left -= len(piece)
            yield piece
        if any(self._exactly(-size % BLOCK, f"in {of}")):
            raise damaged(self._where, f"{of} is longer than it says")

    def end(self) -> None:
        """Behind the end of the tar there must be nothing but zeros; then all of the file was there."""
        left = _ZEROS_MOST_BYTES
        while piece := self._read(left, "at its end"):
            left -= len(piece)
            if any(piece) or not left:
                raise damaged(self._where, "something follows its end")
        if self._inflate.unused_data or self._waiting or next(self._pieces, b""):
            raise damaged(self._where, "something follows its end")

    def _exactly(self, size: int, place: str) -> bytes:
        found = b""
        while len(found) < size:
            found += self._some(size - len(found), place)
        return found

    def _some(self, most: int, place: str) -> bytes:
        if piece := self._read(most, place):
            return piece
        raise damaged(self._where, f"it ends {place}")

    def _read(self, most: int, place: str) -> bytes:
        """Up to `most` bytes; none behind the last one."""
        while not self._inflate.eof:
            waiting = self._waiting or next(self._pieces, b"")
            try:
                found = self._inflate.decompress(waiting, most)
            except zlib.error:
                raise damaged(self._where, f"it cannot be unpacked {place}") from None
            self._waiting = self._inflate.unconsumed_tail
            if found:
                return found
            if not waiting:
                raise damaged(self._where, f"it is cut short {place}")
        return b""


def _parse(block: bytes) -> tarfile.TarInfo:
    return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")


def damaged(where: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where}: is damaged: {what}; nothing was imported: copy it again, or export the job again")


def not_an_export(where: str) -> UsageError:
    return UsageError(f"{where}: is not an export of agentrun; give a file that agentrun export has written")

"""The head of a job in a bucket, as text: a line of JSON, the state, and the records that are in no segment yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from msgspec import DecodeError, Struct, json, structs

from agentrun.errors import CheckpointError

VERSION = 1
_SEGMENT = re.compile(r"(\d+)-(\d+)-(\d+)-([0-9a-f]+)")


class Segment(Struct, frozen=True, array_like=True):
    """Some records of a journal that follow each other, in an object that never changes."""

    tag: str
    first: int
    """The ref of its first record."""
    count: int
    size: int
    """Bytes of its records, with a newline each."""

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def name(self) -> str:
        """It says all that there is to know of the segment, for those who find it where nothing names it."""
        return f"{self.first:012d}-{self.count}-{self.size}-{self.tag}"


def parse_segment(name: str) -> Segment | None:
    """The segment of this name; None if it is another object."""
    found = _SEGMENT.fullmatch(name)
    return Segment(found[4], int(found[1]), int(found[2]), int(found[3])) if found else None


class Parts(Struct, frozen=True, omit_defaults=True):
    """The segments of a journal. When they are many, an object of its own lists the first of them: the index."""

    segments: tuple[Segment, ...] = ()
    index: str = ""
    indexed_end: int = 0
    """One more than the last ref in the segments that the index lists."""
    indexed_size: int = 0

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else self.indexed_end

    @property
    def size(self) -> int:
        return self.indexed_size + sum(segment.size for segment in self.segments)


class File(Struct, frozen=True, array_like=True):
    """A side file in pieces, each an object that never changes."""

    tag: str
    pieces: int


class HeadText(Struct, frozen=True, omit_defaults=True):
    """The head of one job. Everything that it names never changes."""

    version: int
    nonce: str
    """Of this text alone: tells one write from another, and makes no two texts, and so no two ETags, the same."""
    epoch: int = 0
    holder: bytes | None = None
    ttl: float = 0.0
    seq: int = 0
    run: str = ""
    journal: str = ""
    """The journal of the unfinished run."""
    tail_ref: int = 0
    """The ref of the first record in the tail."""
    journals: dict[str, Parts] = {}
    """All journals that are needed, those of runs that ended included."""
    ended: str = ""
    """The object with the runs that ended; empty if there are none."""
    ended_runs: tuple[str, ...] = ()
    """Their ids."""
    files: dict[str, File] = {}
    """The side files that were put by holders of the lease."""
    state_bytes: int | None = None
    tail_bytes: tuple[int, ...] = ()
    state: bytes | None = None
    tail: tuple[bytes, ...] = ()
    """Records of `journal` that are in no segment yet."""

    def end_of(self, journal: str) -> int:
        """How many records the journal has."""
        if journal == self.journal:
            return self.tail_ref + len(self.tail)
        return self.journals.get(journal, Parts()).end

    def has_journal(self, journal: str) -> bool:
        return journal == self.journal or journal in self.journals

    def has_records_of(self, other: HeadText) -> bool:
        """Whether the records are the same, and in the same places."""
        mine, others = ((one.journal, one.tail_ref, one.journals, one.tail) for one in (self, other))
        return mine == others


def no_head() -> HeadText:
    return HeadText(version=VERSION, nonce="")


def encode_head(head: HeadText) -> bytes:
    header = structs.replace(
        head,
        state=None,
        tail=(),
        state_bytes=len(head.state) if head.state is not None else None,
        tail_bytes=tuple(map(len, head.tail)),
    )
    return json.encode(header) + b"\n" + (head.state or b"") + b"\n" + join_lines(head.tail)


def decode_head(text: bytes, *, where: str) -> HeadText:
    line, _, rest = text.partition(b"\n")
    try:
        header = json.decode(line, type=HeadText)
    except DecodeError as error:
        raise _unreadable(line, error, where) from None
    if header.version != VERSION:
        raise _newer(header.version, where)
    size = header.state_bytes or 0
    tail = split_lines(rest[size + 1 :], header.tail_bytes)
    if tail is None or len(rest) <= size:
        raise CheckpointError(f"{where}: the head is damaged (it is cut off); restore it from a backup")
    return structs.replace(header, state=rest[:size] if header.state_bytes is not None else None, tail=tuple(tail))


def _unreadable(line: bytes, error: DecodeError, where: str) -> CheckpointError:
    try:
        version = json.decode(line, type=dict[str, object]).get("version")
    except DecodeError:
        version = None
    if isinstance(version, int) and version > VERSION:
        return _newer(version, where)
    return CheckpointError(f"{where}: the head is damaged ({error}); restore it from a backup")


def _newer(version: int, where: str) -> CheckpointError:
    return CheckpointError(f"{where}: has version {version}, from a newer agentrun; use that one")


def join_lines(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def split_lines(text: bytes, sizes: Sequence[int]) -> list[bytes] | None:
    """The lines of these sizes, which may hold any bytes; None if the text is not as long as they are together."""
    if len(text) != sum(sizes) + len(sizes):
        return None
    found, at = [], 0
    for size in sizes:
        found.append(text[at : at + size])
        at += size + 1
    return found


def encode_name(name: str) -> str:
    """The name as a part of a path: letters, digits, `_`, `-`, `.` and `=`. No service has trouble with those."""
    made = quote(name, safe="").replace("~", "%7E").replace("%", "=")
    # A part that is empty, or dots alone, is none.
    return (f"=2E{made[1:]}" if made.startswith(".") else made) or "="


def decode_name(part: str) -> str:
    return unquote(part.replace("=", "%")) if part != "=" else ""

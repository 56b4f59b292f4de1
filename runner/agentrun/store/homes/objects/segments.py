"""The records of a job that are in segments: `seg/<journal>/<first ref>-<random>`, written once and never changed."""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from msgspec import DecodeError, json, structs

from agentrun.errors import CheckpointError
from agentrun.store.homes.objects.bucket import Bucket
from agentrun.store.homes.objects.head import (
    Parts,
    Segment,
    encode_name,
    join_lines,
    parse_segment,
    split_lines,
)

TAIL_BYTES = 256 * 1024
"""The most bytes of records that stay in the head."""
SEGMENT_BYTES = 8 * 1024 * 1024
"""About the most bytes of one segment."""
LISTED = 64
"""The most segments of a journal that the head lists itself."""
_CACHED_BYTES = 32 * 1024 * 1024
_READ_AHEAD = 4
T = TypeVar("T")


class GoneError(CheckpointError):
    """An object that a head names is not there; if that head was an old one, a newer one names others."""


class Segments:
    """The segments of all journals of one job, in the folder `at`."""

    def __init__(self, bucket: Bucket, at: str) -> None:
        self.at = at
        self._bucket = bucket
        self._cache = _Cache[list[bytes]](_CACHED_BYTES)
        self._indexes = _Cache[tuple[Segment, ...]](_CACHED_BYTES)

    def folder(self, journal: str) -> str:
        return f"{self.at}/{encode_name(journal)}"

    def path(self, journal: str, name: str) -> str:
        return f"{self.folder(journal)}/{name}"

    # ---- writing

    def put(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> list[Segment]:
        """Write the lines; the segments that have them."""
        made: list[Segment] = []
        for some in _chunks(lines):
            segment = Segment(secrets.token_hex(6), first_ref, len(some), sum(map(len, some)) + len(some))
            self._bucket.put(
                self.path(journal, segment.name), json.encode(list(map(len, some))) + b"\n" + join_lines(some)
            )
            made.append(segment)
            first_ref = segment.end
        return made

    def extend(self, journal: str, parts: Parts, segments: Iterable[Segment]) -> Parts:
        """The parts with these segments behind them."""
        listed = (*parts.segments, *segments)
        if len(listed) <= LISTED:
            return structs.replace(parts, segments=listed)
        # Otherwise every commit of a long run would send a longer list.
        whole = (*self.all(journal, structs.replace(parts, segments=())), *listed)
        index = f"index-{secrets.token_hex(6)}"
        self._bucket.put(self.path(journal, index), json.encode(whole))
        return Parts(index=index, indexed_end=whole[-1].end, indexed_size=sum(one.size for one in whole))

    # ---- reading

    def all(self, journal: str, parts: Parts) -> tuple[Segment, ...]:
        """All segments, in order. GoneError if their index was forgotten meanwhile."""
        if not parts.index:
            return parts.segments
        path = self.path(journal, parts.index)
        if (indexed := self._indexes.get(path)) is None:
            found = self._bucket.get(path)
            if found is None:
                raise GoneError(f"{self._bucket.shown}: {path} is gone; restore it from a backup")
            try:
                indexed = json.decode(found.data, type=tuple[Segment, ...])
            except DecodeError:
                raise self._damaged(path) from None
            self._indexes.put(path, indexed, len(found.data))
        return (*indexed, *parts.segments)

    def listed(self, journal: str) -> Parts:
        """The segments of a journal that no head names, as they are found."""
        found: list[Segment] = []
        names = (one.path.rpartition("/")[2] for one in self._bucket.objects(self.folder(journal)))
        for segment in sorted(filter(None, map(parse_segment, names)), key=lambda one: (one.first, one.tag)):
            # What was staged twice is there twice.
            if not found or segment.first >= found[-1].end:
                found.append(segment)
        return Parts(segments=tuple(found))

    def _there(self, journal: str, parts: Parts) -> tuple[Segment, ...]:
        try:
            return self.all(journal, parts)
        except GoneError:
            return ()

    def scan(self, journal: str, parts: Parts, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        """The records from `first_ref` up to, not including, `end_ref`; what is gone is left out."""
        wanted = [one for one in self._there(journal, parts) if one.first < end_ref and one.end > first_ref]
        for segment, lines in self._read(journal, wanted):
            yield from (one for one in enumerate(lines, segment.first) if first_ref <= one[0] < end_ref)

    def find(self, journal: str, parts: Parts, refs: Iterable[int]) -> dict[int, bytes]:
        """The records at these refs; what is gone is left out. Each segment is read once."""
        segments = self._there(journal, parts)
        starts = [segment.first for segment in segments]
        wanted: dict[Segment, list[int]] = {}
        for ref in refs:
            at = bisect_right(starts, ref) - 1
            if at >= 0 and ref < segments[at].end:
                wanted.setdefault(segments[at], []).append(ref)
        found: dict[int, bytes] = {}
        for segment, lines in self._read(journal, sorted(wanted, key=lambda one: one.first)):
            found.update((ref, lines[ref - segment.first]) for ref in wanted[segment])
        return found

    def _read(self, journal: str, segments: Sequence[Segment]) -> Iterator[tuple[Segment, list[bytes]]]:
        """The lines of each segment, some of them read ahead; one that is gone is left out."""
        if len(segments) == 1:
            lines = self._lines(journal, segments[0])
            yield from [(segments[0], lines)] if lines is not None else []
            return
        with ThreadPoolExecutor(_READ_AHEAD, thread_name_prefix="agentrun-segments") as threads:
            waiting: deque[Future[list[bytes] | None]] = deque()
            for at, segment in enumerate(segments):
                ahead = segments[at + len(waiting) : at + _READ_AHEAD]
                waiting.extend(threads.submit(self._lines, journal, one) for one in ahead)
                if (lines := waiting.popleft().result()) is not None:
                    yield segment, lines

    def _lines(self, journal: str, segment: Segment) -> list[bytes] | None:
        path = self.path(journal, segment.name)
        if (cached := self._cache.get(path)) is not None:
            return cached
        found = self._bucket.get(path)
        if found is None:
            return None
        sizes, _, text = found.data.partition(b"\n")
        try:
            lines = split_lines(text, json.decode(sizes, type=list[int]))
        except DecodeError:
            lines = None
        if lines is None or len(lines) != segment.count:
            raise self._damaged(path)
        self._cache.put(path, lines, segment.size)
        return lines

    def _damaged(self, path: str) -> CheckpointError:
        return CheckpointError(
            f"{self._bucket.shown}: {path} is damaged; restore it from a backup, or start over with --fresh"
        )


def _chunks(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size >= SEGMENT_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


class _Cache(Generic[T]):
    """The objects read last, up to so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._found: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> T | None:
        with self._lock:
            if path not in self._found:
                return None
            self._found.move_to_end(path)
            return self._found[path][0]

    def put(self, path: str, value: T, size: int) -> None:
        with self._lock:
            if size > self._most_bytes or path in self._found:
                return
            self._found[path] = value, size
            self._bytes += size
            while self._bytes > self._most_bytes:
                self._bytes -= self._found.popitem(last=False)[1][1]

"""Two lanes over one tube, so that a lease does not run out behind a large frame.

An archive of 64 MiB takes half a minute over a slow line: as long as a lease. So ordinary frames are sent in pieces,
and urgent ones, those of the lease, go between them. That alone would not help where somebody on the way takes whatever
they are given, as Dask does: **at most `WINDOW_BYTES` of the ordinary lane are on their way**, until the other side
says that it has them (`taken`).

A piece is one byte for its lane, four for its length, and the bytes. The bytes of a lane are frames, in order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

from agentrun.executors.cluster.frames import Cutter, HostFrame, make_frame

URGENT = frozenset({"ping", "pong", "taken"})
PIECE_BYTES = 64 * 1024
WINDOW_BYTES = 1024 * 1024
_URGENT, _ORDINARY = range(2)
_HEADER = struct.Struct(">BI")


class Outgoing:
    """What is to be sent, in the order in which it is sent. It has no lock."""

    def __init__(self) -> None:
        self._urgent: deque[bytes] = deque()
        self._ordinary: deque[bytes | memoryview] = deque()
        self._room = WINDOW_BYTES

    def put(self, frame: bytes, *, is_urgent: bool) -> None:
        if is_urgent:
            self._urgent.append(frame)
        else:
            self._ordinary.append(frame)

    def acknowledge(self, size: int) -> None:
        """The other side has so many bytes more of the ordinary lane."""
        self._room += size

    def take(self) -> bytes:
        """What may be sent next: the urgent frames, and one piece. Empty if there is nothing, or must wait."""
        out = bytearray()
        while self._urgent:
            _add(out, _URGENT, self._urgent.popleft())
        piece, most = bytearray(), min(PIECE_BYTES, self._room)
        while self._ordinary and (room := most - len(piece)) > 0:
            frame = self._ordinary.popleft()
            if len(frame) > room:
                rest = memoryview(frame)
                frame = rest[:room]
                self._ordinary.appendleft(rest[room:])
            piece += frame
        if piece:
            self._room -= len(piece)
            _add(out, _ORDINARY, piece)
        return bytes(out)

    @property
    def is_empty(self) -> bool:
        return not self._urgent and not self._ordinary


class Incoming:
    """Makes frames again of what arrives."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._cutters = {_URGENT: Cutter(), _ORDINARY: Cutter()}
        self._taken = 0

    def feed(self, data: bytes) -> Iterator[HostFrame]:
        # What arrives is most often whole, and needs no copy then.
        found = data if not self._data else bytes(self._data + data)
        at = 0
        while len(found) - at >= _HEADER.size:
            lane, size = _HEADER.unpack_from(found, at)
            begin = at + _HEADER.size
            if len(found) - begin < size:
                break
            at = begin + size
            if lane == _ORDINARY:
                self._taken += size
            yield from self._cutters[lane].feed(found[begin:at])
        self._data = bytearray(found[at:])

    def acknowledgement(self) -> bytes:
        """A frame for the other side, from time to time; otherwise empty."""
        if self._taken < WINDOW_BYTES // 4:
            return b""
        frame = make_frame("taken", size=self._taken)
        self._taken = 0
        return frame


def _add(out: bytearray, lane: int, data: bytes | bytearray) -> None:
    out += _HEADER.pack(lane, len(data))
    out += data

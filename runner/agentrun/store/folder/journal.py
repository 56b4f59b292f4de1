"""Reading a journal: its lines in order, or at a given place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agentrun.errors import CheckpointError
from agentrun.system.disk import disk_error

PIECE_BYTES = 1 << 18


class JournalLines:
    """The lines of a journal, in order or at a given place, read in large pieces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._at = 0
        self._piece = b""

    def open(self) -> bool:
        """False if there is no such file."""
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk_error(self._path, error) from error
        return True

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> JournalLines:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def until(self, length: int) -> Iterator[tuple[int, bytes]]:
        """The lines of the first `length` bytes; they must end there with a newline."""
        self._check_there(length)
        ref, rest = 0, b""
        while ref + len(rest) < length:
            at = ref + len(rest)
            piece = self._read(at, min(PIECE_BYTES, length - at))
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield ref, line
                ref += len(line) + 1
        if ref != length:
            raise CheckpointError(
                f"{self._path}: ends at byte {ref + len(rest)}, and the run counts on {length}; "
                f"restore it, or begin anew with --fresh (the old files are kept)"
            )

    def after(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """The whole lines behind `offset`, whatever they hold."""
        self._check_there(offset)
        ref, rest = offset, b""
        while piece := self._read(ref + len(rest), PIECE_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield ref, line
                ref += len(line) + 1

    def at(self, ref: int) -> bytes:
        """The line that begins at `ref`."""
        start = ref - self._at
        end = self._piece.find(b"\n", start) if 0 <= start < len(self._piece) else -1
        if end < 0:
            # Slots do not finish in order: the next one asked for may stand a little before this one.
            self._at = max(0, ref - PIECE_BYTES // 4)
            self._piece, start = self._read(self._at, PIECE_BYTES), ref - self._at
            while (end := self._piece.find(b"\n", start)) < 0:
                if not (more := self._read(self._at + len(self._piece), PIECE_BYTES)):
                    return self._piece[start:]
                self._piece += more
        return self._piece[start:end]

    def _check_there(self, length: int) -> None:
        if length and self._fd is None:
            raise CheckpointError(
                f"{self._path}: is missing, and the run counts on it; restore it, or begin anew with --fresh"
            )

    def _read(self, offset: int, count: int) -> bytes:
        return os.pread(self._fd, count, offset) if self._fd is not None else b""

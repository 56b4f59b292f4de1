"""The journal: a run's older records, one a line; and all records of a run, in the journal and in `outputs`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from agentrun.checkpoint.record import Record, RecordError, check_record, decode_record, json_of
from agentrun.errors import CheckpointError
from agentrun.store.folder.needle import Needle
from agentrun.store.port import contains
from agentrun.system.disk import Disk, Held, disk_error, first_moved, open_file, replace_file

PIECE_BYTES = 1 << 18
LINE_BYTES = 1 << 12
"""Read for a single line: most are shorter."""
SEARCHED_BYTES = 1 << 16
"""The piece that a search looks at: small enough for the processor's cache, and for memory that is used again."""
_NAME = re.compile(r"journal-(\d+)\.jsonl")


def journal_name(number: int) -> str:
    return f"journal-{number}.jsonl"


def journal_number(name: str) -> int | None:
    """The number in a journal's name; None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def ways_out(folder: Path, first: str) -> str:
    """What to do about a state that cannot be loaded; the command works everywhere."""
    command = shlex.join(["agentrun", "repair", folder.name, "--state-dir", str(folder.parent)])
    return f"see what can be saved with: {command}; or {first}, or start over with --fresh (the old files are kept)"


def _ways_out(path: Path, first: str) -> str:
    # The journals of runs that ended have other names: there is nothing to repair, the results are written.
    is_filed = journal_number(path.name) is None
    return f"{first}, or start over with --fresh" if is_filed else ways_out(path.parent, first)


class JournalLines:
    """The lines of a journal, in order or at a given place, read in large pieces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._at = 0
        self._piece = b""

    def open(self) -> bool:
        """False if there is no such file."""
        try:
            self._fd = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk_error(self.path, error) from error
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

    def until(self, length: int, *, since: int = 0) -> Iterator[tuple[int, bytes]]:
        """The lines that begin at byte `since` or later, to byte `length`; they must end there with a newline."""
        self._check_there(length)
        ref, rest = self._line_from(since, length) if since else 0, b""
        while ref + len(rest) < length:
            at = ref + len(rest)
            piece = self._read(at, min(PIECE_BYTES, length - at))
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield ref, line
                ref += len(line) + 1
        if ref < length:
            raise self._too_short(ref + len(rest), length)

    def containing(self, needle: bytes, length: int, *, any_case: bool = False) -> Iterator[tuple[int, bytes]]:
        """The lines up to byte `length` that contain the needle, which has no newline; the others are not cut out.

        With `any_case`, ASCII letters match in either case.
        """
        self._check_there(length)
        wanted, ref, size = Needle(needle, any_case=any_case), 0, SEARCHED_BYTES
        while ref < length:
            # Whole lines only, so that nothing is missed at the end of a piece: the rest of it is read again.
            text = self._read(ref, min(size, length - ref))
            end = text.rfind(b"\n") + 1
            if not end:
                if len(text) < size:
                    raise self._too_short(ref + len(text), length)
                size *= 2
                continue
            for start, stop in wanted.lines(text, end):
                yield ref + start, text[start:stop]
            ref, size = ref + end, SEARCHED_BYTES

    def _too_short(self, end: int, length: int) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: ends at byte {end}, but the run needs {length} bytes of it; "
            f"{_ways_out(self.path, 'restore it')}"
        )

    def _line_from(self, offset: int, length: int) -> int:
        """Where the first line begins that is not before `offset`."""
        at = offset - 1
        while piece := self._read(at, min(PIECE_BYTES, length - at)):
            if (end := piece.find(b"\n")) >= 0:
                return at + end + 1
            at += len(piece)
        return at

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
            # Slots do not finish in order: the next line asked for may stand a little before this one. One that is far
            # from the last is perhaps the only one that is wanted there.
            is_far = abs(ref - self._at) > 2 * PIECE_BYTES
            self._at = ref if is_far else max(0, ref - PIECE_BYTES // 4)
            self._piece, start = self._read(self._at, LINE_BYTES if is_far else PIECE_BYTES), ref - self._at
            while (end := self._piece.find(b"\n", start)) < 0:
                if not (more := self._read(self._at + len(self._piece), PIECE_BYTES)):
                    return self._piece[start:]
                self._piece += more
        return self._piece[start:end]

    def _check_there(self, length: int) -> None:
        if length and self._fd is None:
            raise CheckpointError(
                f"{self.path}: is missing, and the run needs it; {_ways_out(self.path, 'restore it')}"
            )

    def _read(self, offset: int, count: int) -> bytes:
        return os.pread(self._fd, count, offset) if self._fd is not None else b""


class Records:
    """The records of a run by ref, which is a byte offset in *journal ++ outputs*.

    When `outputs` moves to the journal it moves to exactly that offset, so a ref never changes until compaction.
    """

    def __init__(
        self, lines: JournalLines, length: int, outputs: Sequence[bytes] = (), *, newest_seq: int | None = None
    ) -> None:
        self._lines = lines
        self._length = length
        self._newest_seq = newest_seq
        self._outputs: dict[int, bytes] = {}
        ref = length
        for line in outputs:
            self._outputs[ref] = line
            ref += len(line) + 1

    def scan(self, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        """All of them with their refs, oldest first."""
        decode = self._decode
        if since < self._length:
            for ref, line in self._lines.until(self._length, since=since):
                yield ref, decode(ref, line)
        for ref, line in self._outputs.items():
            if ref >= since:
                yield ref, decode(ref, line)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        for ref in refs:
            yield self._decode(ref, self.line(ref))

    def line(self, ref: int) -> bytes:
        """The record at `ref` as it is written."""
        return self._lines.at(ref) if ref < self._length else self._outputs[ref]

    def lines(self) -> Iterator[bytes]:
        """All of them as they are written, oldest first, each checked."""
        in_journal = self._lines.until(self._length) if self._length else ()
        for ref, line in chain(in_journal, self._outputs.items()):
            if not check_record(line):
                raise self._damaged(ref, "the checksum does not match")
            yield line

    def containing(self, needle: bytes, *, any_case: bool = False) -> Iterator[tuple[int, Record]]:
        """The records with these bytes in their JSON. Decoding takes longest: the bytes are looked at first."""
        in_journal = self._lines.containing(needle, self._length, any_case=any_case) if self._length else ()
        for ref, line in chain(in_journal, self._outputs.items()):
            if contains(json_of(line), needle, any_case=any_case):
                yield ref, self._decode(ref, line)

    def _decode(self, ref: int, line: bytes) -> Record:
        try:
            record = decode_record(line)
        except RecordError as error:
            raise self._damaged(ref, str(error)) from None
        if self._newest_seq is not None and record.seq > self._newest_seq:
            raise self._damaged(ref, f"its seq {record.seq} is beyond the checkpoint's {self._newest_seq}")
        return record

    def _damaged(self, ref: int, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._lines.path}: the record at byte {ref} is damaged ({what}); "
            f"{_ways_out(self._lines.path, 'restore the folder from a backup')}"
        )


class JournalFile:
    """The journal that a launch appends to. Errors of the disk are OSErrors."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._held: Held | None = None
        self._is_new = False

    def append(self, path: Path, length: int, text: bytes) -> None:
        """Write `text` at the journal's length; nothing names these bytes yet.

        A journal with a second name is a backup by hard links, which must not change: it is copied first. Such a
        backup may be made at any time, so each append looks.
        """
        held = self._held
        if held is not None and held.stat().st_nlink > 1:
            self.close()
            held = None
        if held is None:
            held = self._held = _open_journal(self._disk, path, length)
            self._is_new = True
        if first_moved(held) is not None:
            raise CheckpointError(f"{path}: was replaced by another program while this one was running")
        self._disk.write(held.fd, text, length)

    def sync(self, folder: Held) -> None:
        """Before anything that counts on the journal's new length gets its name; the journal's own entry too."""
        assert self._held is not None
        if self._is_new:
            folder.stat()
            self._disk.fsync(folder.fd)
            self._is_new = False
        self._held.stat()
        self._disk.fsync(self._held.fd)

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _open_journal(disk: Disk, path: Path, length: int) -> Held:
    """The journal, with one name only; made if it has no records yet."""
    try:
        fd = disk.open(str(path), os.O_RDWR | (0 if length else os.O_CREAT))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: was removed while this program was running; restore it, then resume") from None
    try:
        found = os.fstat(fd)
        if found.st_size < length:
            raise CheckpointError(f"{path}: has {found.st_size} bytes, but the run needs {length} of it; restore it")
        if found.st_nlink == 1:
            return Held(fd, str(path))
        pieces = (os.pread(fd, min(PIECE_BYTES, length - at), at) for at in range(0, length, PIECE_BYTES))
        replace_file(disk, path, pieces)
    except BaseException:
        disk.close(fd)
        raise
    disk.close(fd)
    return Held(disk.open(str(path), os.O_RDWR), str(path))


def write_journal(disk: Disk, path: Path, lines: Iterable[bytes]) -> int:
    """Write a new journal of these lines and fsync it, but not its folder's entry; return its length."""
    length = 0
    piece = bytearray()
    fd = disk.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for line in lines:
            piece += line
            piece += b"\n"
            length += len(line) + 1
            if len(piece) >= PIECE_BYTES:
                disk.write(fd, bytes(piece))
                piece.clear()
        disk.write(fd, bytes(piece))
        disk.fsync(fd)
    finally:
        disk.close(fd)
    return length


def with_places(lines: Iterable[bytes], put: Callable[[int], None]) -> Iterator[bytes]:
    """The lines, putting down where each begins in a journal of them."""
    at = 0
    for line in lines:
        put(at)
        at += len(line) + 1
        yield line

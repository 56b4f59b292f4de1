"""log.jsonl: every launch, restore, checkpoint and stop, with its time and position. Not part of recovery."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from agentrun.store.port import HistoryEvent
from agentrun.system.disk import Disk, Held, open_to_read

LIMIT_BYTES = 8 * 1024 * 1024
RECENT_BYTES = 64 * 1024
NAME, ROTATED = "log.jsonl", "log.1.jsonl"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HistoryEvent).decode


class History:
    """Appends events; never an error, because the run does not depend on it."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._path = folder / NAME
        self._disk = disk
        self._held: Held | None = None
        self._bytes = 0

    def add(self, event: HistoryEvent) -> None:
        try:
            held = self._held
            if held is not None and (found := os.fstat(held.fd)) and (found.st_dev, found.st_ino) != held.file:
                held = None
            if held is None:
                fd = self._disk.open(str(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                held = self._held = Held(fd, str(self._path))
                self._bytes = os.fstat(fd).st_size
            line = _encode(event) + b"\n"
            os.write(held.fd, line)
            self._bytes += len(line)
            if self._bytes > LIMIT_BYTES:
                self.close()
                os.replace(self._path, self._path.with_name(ROTATED))
        except OSError:
            self.close()

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def read_history(folder: Path) -> Iterator[HistoryEvent]:
    """The events, the rotated part first. What cannot be read is passed over."""
    for name in (ROTATED, NAME):
        try:
            with open_to_read(folder / name) as file:
                yield from _events(file)
        except OSError:
            continue


def recent_history(folder: Path) -> Iterator[HistoryEvent]:
    """The events at the end of the log, whatever its size."""
    try:
        with open_to_read(folder / NAME) as file:
            # The first line is probably cut, and then is no event.
            file.seek(max(0, os.fstat(file.fileno()).st_size - RECENT_BYTES))
            yield from _events(file)
    except OSError:
        return


def _events(lines: Iterable[bytes]) -> Iterator[HistoryEvent]:
    for line in lines:
        try:
            yield _decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue


def last_launch(folder: Path) -> HistoryEvent | None:
    """The newest launch in the log, with its run."""
    found = None
    for event in read_history(folder):
        if event.event in ("launch", "restore") and event.run_id:
            found = event
    return found

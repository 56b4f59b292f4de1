"""log.jsonl: every launch, restore, checkpoint and stop, with its time and position. Not part of recovery."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentrun.store.port import HistoryEvent
from agentrun.system.disk import Disk

LIMIT_BYTES = 8 * 1024 * 1024
NAME, ROTATED = "log.jsonl", "log.1.jsonl"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HistoryEvent).decode


class History:
    """Appends events; never an error, because the run does not depend on it."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._fd: int | None = None
        self._bytes = 0

    def add(self, event: HistoryEvent) -> None:
        try:
            if self._fd is None:
                self._fd = self._disk.open(str(self._folder / NAME), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                self._bytes = os.fstat(self._fd).st_size
            line = _encode(event) + b"\n"
            os.write(self._fd, line)
            self._bytes += len(line)
            if self._bytes > LIMIT_BYTES:
                self.close()
                os.replace(self._folder / NAME, self._folder / ROTATED)
        except OSError:
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def read_history(folder: Path) -> Iterator[HistoryEvent]:
    """The events, the rotated part first. What cannot be read is passed over."""
    for name in (ROTATED, NAME):
        try:
            with (folder / name).open("rb") as file:
                for line in file:
                    try:
                        event = _decode(line)
                    except (msgspec.MsgspecError, ValueError, RecursionError):
                        continue
                    yield event
        except OSError:
            continue

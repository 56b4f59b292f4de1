"""The records of a run that has ended, as the beginning of a new one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from agentrun.checkpoint import Checkpoint
from agentrun.clock import new_run_id, now_text
from agentrun.errors import CheckpointError
from agentrun.record import check_record
from agentrun.store.disk import Disk
from agentrun.store.journal import PIECE_BYTES, JournalLines


def checkpoint_from(summary: Mapping[str, Any], *, seq: int) -> Checkpoint:
    """A run that begins with the records of the one in `summary`; `seq` is the highest among them."""
    # Local, as that of every new run: the date that people expect in the name of tonight's output.
    date = datetime.now().astimezone().date().isoformat()
    context = {"launches": 0, "date": date, "from_run": str(summary["run_id"])}
    job = str(summary.get("job", ""))
    return Checkpoint(job=job, run_id=new_run_id(), seq=seq, started_at=now_text(), context=context)


def highest_seq(lines: Iterable[bytes]) -> int:
    """Of records whose checksums are known to be right."""
    return max((int(orjson.loads(line)["seq"]) for line in lines), default=0)


def filed_lines(path: Path, length: int) -> Iterator[bytes]:
    """The records in a journal that was filed with its run. A damaged one raises CheckpointError."""
    with JournalLines(path) as lines:
        for ref, line in lines.until(length):
            if not check_record(line):
                raise CheckpointError(
                    f"{path}: the record at byte {ref} is damaged (the checksum does not match); restore the file "
                    f"from a backup, or begin anew with --fresh"
                )
            yield line


def copy_lines(disk: Disk, lines: Iterable[bytes], path: Path) -> tuple[int, int]:
    """Write a journal of these lines, fsynced but for its folder's entry; return its length and the highest seq."""
    length = seq = 0
    piece = bytearray()
    fd = disk.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for line in lines:
            seq = max(seq, highest_seq([line]))
            piece += line + b"\n"
            length += len(line) + 1
            if len(piece) >= PIECE_BYTES:
                disk.write(fd, bytes(piece))
                piece.clear()
        disk.write(fd, bytes(piece))
        disk.fsync(fd)
    finally:
        disk.close(fd)
    return length, seq

"""The folder `runs`: of each run that has ended its summary, and of the last few the journal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from agentrun.checkpoint.record import check_record, highest_seq
from agentrun.errors import CheckpointError
from agentrun.store.folder.journal import PIECE_BYTES, JournalLines
from agentrun.system.disk import Disk, discard, is_temporary, replace_file, secure_folder, sync_folder

SUMMARIES_KEPT = 20
JOURNALS_KEPT = 3


class Runs:
    """Of one job. Errors of the disk are OSErrors."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk

    def file(self, summary: Mapping[str, Any], journal: Path | None) -> None:
        """Keep the summary, from when on the run has ended, and then its journal; durably, but for `runs` itself."""
        run_id = str(summary["run_id"])
        secure_folder(self._disk, self._folder)
        if self.summary(run_id) is None:
            replace_file(self._disk, self._summary(run_id), [orjson.dumps(summary, option=orjson.OPT_INDENT_2)])
        else:
            # An earlier launch renamed it and may not have lived to sync that; the journal must not go before it.
            sync_folder(self._disk, self._folder)
        if journal is not None and journal.exists():
            self._disk.replace(str(journal), str(self.journal(run_id)))
        # Also what an earlier launch renamed and did not live to sync.
        sync_folder(self._disk, self._folder)

    def put_aside(self, files: Mapping[Path, str]) -> None:
        """Move these here, under other names."""
        secure_folder(self._disk, self._folder)
        for path, name in files.items():
            self._disk.replace(str(path), str(self._folder / name))
        sync_folder(self._disk, self._folder)

    def summary(self, run_id: str) -> dict[str, Any] | None:
        return _read_json(self._summary(run_id))

    def journal(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.jsonl"

    def summaries(self) -> list[dict[str, Any]]:
        """Newest first."""
        found = (self.summary(run_id) for run_id in self._ended())
        return [summary for summary in found if summary is not None]

    def prune(self) -> None:
        """Remove what is old, and what a launch that died was writing."""
        ended = self._ended()
        old = {f"{run}.json" for run in ended[SUMMARIES_KEPT:]} | {f"{run}.jsonl" for run in ended[JOURNALS_KEPT:]}
        for name in names_in(self._folder):
            if name in old or is_temporary(name):
                discard(self._disk, str(self._folder / name))

    def _summary(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"

    def _ended(self) -> list[str]:
        return sorted((name[:-5] for name in names_in(self._folder) if name.endswith(".json")), reverse=True)


def names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return value if isinstance(value, dict) else None


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

"""A whole job out of a job's folder, and into one.

A job in a folder is many files, and a crash must not leave some of them. So a job that comes in is written into a
folder of its own first:

1. Everything is written under a temporary name, `.adopted.<random>.tmp/`, and synced. A crash leaves the job as it was,
   and garbage that is pruned.
2. The temporary folder is renamed to `adopted`, and the job's folder synced. **From here on the new job is there.**
3. Its files move to their places: runs, messages, side files, the journal, and `state.json` last. After a crash the
   next lock moves the rest.
4. What the new job replaces is unlinked: old journals, and runs that it does not have. After a crash the next lock
   unlinks the rest.
5. `adopted` is removed, with the list of what to unlink as its last file.

Journals get numbers above all that were there, so none is written over. Whoever reads without the lock sees the old
job, or none, until `state.json` is in its place.

Rejected: the files in their places one after the other, with `state.json` last. A summary in `runs` is a run that ended
from the moment it has its name, and a journal without a `state.json` is refused as damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, Journal, encode_checkpoint
from agentrun.checkpoint.message import encode_message
from agentrun.checkpoint.summary import Summary, encode_summary
from agentrun.errors import CheckpointError
from agentrun.store.contents import Contents, FiledRun, Letter, bare_checkpoint, bare_summary, file_names
from agentrun.store.folder.inbox import FOLDER as INBOX
from agentrun.store.folder.journal import JournalLines, Records, journal_name, journal_number, write_journal
from agentrun.store.folder.runs import FOLDER as RUNS
from agentrun.store.folder.runs import Runs
from agentrun.store.folder.state import NAME as STATE
from agentrun.store.local.pointer import NAME as POINTER
from agentrun.store.moving import MOVED
from agentrun.store.port import Posted, is_side
from agentrun.system.disk import (
    Disk,
    check_folder,
    discard,
    is_temporary,
    names_in,
    open_to_read,
    secure_folder,
    sync_folder,
    temporary_name,
)

ADOPTED = "adopted"
_REPLACED = "replaced.json"
"""The list of the files to unlink in step 4."""
_PIECE_BYTES = 1 << 20


def read_contents(
    folder: Path, runs: Runs, checkpoint: Checkpoint | None, outputs: list[bytes], posted: Iterable[Posted]
) -> Contents:
    """What the folder holds; `checkpoint` is its state, and `outputs` the records in that."""
    lines = tuple if checkpoint is None else partial(_lines, folder / checkpoint.journal.name, checkpoint, outputs)
    names = [name for name in names_in(folder) if is_side(name) or name == MOVED]
    letters = [Letter(one.name, encode_message(one.message)) for one in posted if one.message is not None]
    return Contents(
        checkpoint=bare_checkpoint(checkpoint) if checkpoint is not None else None,
        lines=lines,
        ended=[_filed(runs, one) for one in runs.summaries()],
        sides={name: partial(_pieces, folder / name) for name in sorted(names)},
        letters=letters,
    )


def _lines(path: Path, checkpoint: Checkpoint, outputs: list[bytes]) -> Iterator[bytes]:
    with JournalLines(path) as lines:
        yield from Records(lines, checkpoint.journal.length, outputs).lines()


def _filed(runs: Runs, summary: Summary) -> FiledRun:
    path, length = runs.journal(summary.run_id), summary.journal_length
    return FiledRun(bare_summary(summary), partial(_filed_lines, path, length) if path.exists() else None)


def _filed_lines(path: Path, length: int) -> Iterator[bytes]:
    with JournalLines(path) as lines:
        yield from Records(lines, length).lines()


def _pieces(path: Path) -> Iterator[bytes]:
    with open_to_read(path) as file:
        yield from iter(partial(file.read, _PIECE_BYTES), b"")


class Adoption:
    """A job that comes into a folder whose lock is held. Errors of the disk are OSErrors."""

    def __init__(self, folder: Path, runs: Runs, disk: Disk) -> None:
        self._folder = folder
        self._runs = runs
        self._disk = disk
        self._adopted = folder / ADOPTED

    def stage(self, contents: Contents) -> None:
        """Steps 1 and 2: when this returns, the job is there."""
        self.sweep()
        new = Path(temporary_name(self._folder, ADOPTED))
        try:
            self._write(new, contents)
            self._disk.replace(str(new), str(self._adopted))
        except BaseException:
            _discard_folder(self._disk, new)
            raise
        sync_folder(self._disk, self._folder)

    def _write(self, new: Path, contents: Contents) -> None:
        for folder in (new, new / RUNS, new / INBOX):
            self._disk.mkdir(str(folder))
        numbers = count(self._first_number())
        for one in reversed(contents.ended):
            self._write_run(new / RUNS, one, journal_name(next(numbers)))
        for name, pieces in contents.sides.items():
            _write_file(self._disk, new / name, pieces())
        for name, text in file_names(contents.letters):
            _write_file(self._disk, new / INBOX / name, [text])
        if contents.checkpoint is not None:
            checkpoint = bare_checkpoint(contents.checkpoint)
            name = journal_name(next(numbers))
            checkpoint.journal = Journal(name, write_journal(self._disk, new / name, contents.lines()))
            _write_file(self._disk, new / STATE, [encode_checkpoint(checkpoint)])
        _write_file(self._disk, new / _REPLACED, [msgspec.json.encode(self._to_replace(contents))])
        for folder in (new / RUNS, new / INBOX, new):
            sync_folder(self._disk, folder)

    def _write_run(self, folder: Path, run: FiledRun, journal: str) -> None:
        run_id = run.summary.run_id
        # Without its records, as after pruning: the journal is not there, and has a length all the same.
        length = write_journal(self._disk, folder / f"{run_id}.jsonl", run.lines()) if run.lines is not None else 1
        summary = structs.replace(run.summary, journal=journal, journal_length=length)
        _write_file(self._disk, folder / f"{run_id}.json", [encode_summary(summary)])

    def _first_number(self) -> int:
        """Above those of all journals that are, or were, here."""
        names = [*names_in(self._folder), *(one.journal for one in self._runs.summaries())]
        return max((journal_number(name) or 0 for name in names), default=0) + 1

    def _to_replace(self, contents: Contents) -> list[str]:
        """The files of the job that was here before, as seen from the folder. A job in the folder has no pointer."""
        kept = {one.summary.run_id for one in contents.ended}
        kept_lines = {one.summary.run_id for one in contents.ended if one.lines is not None}
        old = [name for name in names_in(self._folder) if journal_number(name) is not None or name == POINTER]
        if contents.checkpoint is None:
            old.append(STATE)
        for one in self._runs.summaries():
            old += [f"{RUNS}/{one.run_id}.json"] if one.run_id not in kept else []
            old += [f"{RUNS}/{one.run_id}.jsonl"] if one.run_id not in kept_lines else []
        return old

    def finish(self) -> None:
        """Steps 3 to 5, from wherever a crash has left them; nothing if no job is coming in."""
        if not os.path.lexists(self._adopted):
            return
        check_folder(self._adopted)
        for name in (RUNS, INBOX):
            if inner := names_in(self._adopted / name):
                secure_folder(self._disk, self._folder / name)
                for one in inner:
                    self._disk.replace(str(self._adopted / name / one), str(self._folder / name / one))
                sync_folder(self._disk, self._folder / name)
        # In this order for those who read without the lock: a journal is there before the state that names it.
        for name in sorted(names_in(self._adopted), key=lambda name: name == STATE):
            if name not in (RUNS, INBOX, _REPLACED):
                if name == STATE:
                    sync_folder(self._disk, self._folder)
                self._disk.replace(str(self._adopted / name), str(self._folder / name))
        sync_folder(self._disk, self._folder)
        self._unlink_old()
        _discard_folder(self._disk, self._adopted, last=_REPLACED)
        sync_folder(self._disk, self._folder)

    def _unlink_old(self) -> None:
        path = self._adopted / _REPLACED
        if not os.path.lexists(path):
            return
        with open_to_read(path) as file:
            names = msgspec.json.decode(file.read(), type=list[str])
        for name in names:
            if name.startswith("/") or ".." in name.split("/"):
                raise CheckpointError(
                    f"{path}: names {name!r}, which is outside of the job's folder; remove the folder"
                )
            if os.path.lexists(self._folder / name):
                self._disk.unlink(str(self._folder / name))
        for folder in (self._folder / RUNS, self._folder):
            if folder.is_dir():
                sync_folder(self._disk, folder)

    def sweep(self) -> None:
        """Remove what adoptions left that died in step 1."""
        for name in names_in(self._folder):
            if is_temporary(name, ADOPTED):
                _discard_folder(self._disk, self._folder / name)


def _write_file(disk: Disk, path: Path, pieces: Iterable[bytes]) -> None:
    """A new file, synced, but not its folder's entry."""
    fd = disk.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for piece in pieces:
            disk.write(fd, piece)
        disk.fsync(fd)
    finally:
        disk.close(fd)


def _discard_folder(disk: Disk, folder: Path, *, last: str = "") -> None:
    """Remove a folder of ours, with `last` as its last file. What cannot be removed is left for the next time."""
    for inner in (folder / RUNS, folder / INBOX, folder):
        for name in sorted(names_in(inner), key=lambda name: name == last):
            discard(disk, str(inner / name))
        try:
            disk.rmdir(str(inner))
        except OSError:
            pass

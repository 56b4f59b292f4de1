"""The default store: a folder with an atomically replaced state.json and a journal.

A commit costs one file fsync and one folder fsync; the journal is written when the redo part (`outputs`) passes its
limit. Crash windows and invariants: runner/DESIGN.md.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Raw, structs

from agentrun.checkpoint.checkpoint import Checkpoint, Journal, encode_checkpoint
from agentrun.checkpoint.message import AnyMessage, is_run_id
from agentrun.checkpoint.record import Record, encode_record, highest_seq
from agentrun.checkpoint.summary import Summary, checkpoint_from
from agentrun.errors import CheckpointError, DiskError
from agentrun.store.folder.history import History
from agentrun.store.folder.inbox import Inbox
from agentrun.store.folder.journal import (
    JournalLines,
    Records,
    filed_lines,
    journal_name,
    journal_number,
    open_journal,
    with_places,
    write_journal,
)
from agentrun.store.folder.lock import FolderLease, Lock, live_holder
from agentrun.store.folder.reader import FolderReader
from agentrun.store.folder.rollback import check_alone, check_tail, journals_in
from agentrun.store.folder.runs import Runs, names_in
from agentrun.store.folder.sides import SideFiles
from agentrun.store.folder.state import StateFile, Written, read_checkpoint
from agentrun.store.port import HistoryEvent, Holder, Loaded, Posted, Store, Sync
from agentrun.system.disk import (
    Disk,
    check_folder,
    discard,
    disk_error,
    is_temporary,
    replace_file,
    secure_folder,
)

REDO_LIMIT_BYTES = 16 * 1024


class FolderStore(Store):
    """`folder` is made by `lock`; reading needs neither."""

    folder: Path

    def __init__(self, folder: Path, *, disk: Disk | None = None, redo_limit_bytes: int = REDO_LIMIT_BYTES) -> None:
        self.folder = folder
        self._disk = disk or Disk()
        self._redo_limit_bytes = redo_limit_bytes
        self._inbox = Inbox(folder, self._disk)
        self._runs = Runs(folder, self._disk)
        self._state = StateFile(folder, self._disk)
        self._history = History(folder, self._disk)
        self._sides = SideFiles(folder, self._disk)
        self._seq: int | None = None
        self._outputs: list[bytes] = []
        self._outputs_bytes = 0
        self._journal = Journal("", 0)
        self._journal_fd: int | None = None
        self._journal_is_new = False
        self._folder_fd: int | None = None
        self._broken: DiskError | None = None

    # ---- the lock

    def lock(self, *, wait_seconds: float = 5.0) -> FolderLease:
        root = self.folder.parent
        try:
            secure_folder(self._disk, root)
            if not (root / ".gitignore").exists():
                replace_file(self._disk, root / ".gitignore", [b"*\n"])
            secure_folder(self._disk, self.folder)
            for name in ("runs", "logs", "inbox", "work"):
                if os.path.lexists(self.folder / name):
                    check_folder(self.folder / name)
            lease = Lock(self.folder, self._disk).acquire(wait_seconds=wait_seconds, on_release=self._close)
            self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise disk_error(error.filename or self.folder, error) from error
        return lease

    def _close(self) -> None:
        for fd in (self._journal_fd, self._folder_fd):
            if fd is not None:
                os.close(fd)
        self._journal_fd = self._folder_fd = None
        self._history.close()

    # ---- reading

    def reader(self, *, accept_edits: bool = False) -> FolderReader:
        return FolderReader(self.folder, accept_edits=accept_edits)

    def holder(self) -> Holder | None:
        return live_holder(self.folder)

    def load(self, *, accept_edits: bool = False) -> Loaded:
        """Read and check the state, changing nothing on disk."""
        try:
            text = self._state.read()
        except FileNotFoundError:
            self._begin_fresh()
            return Loaded()
        except OSError as error:
            raise disk_error(self._state.path, error) from error
        checkpoint = read_checkpoint(text, self._state.path, accept_edits=accept_edits)
        self._close_journal()
        self._seq = checkpoint.seq
        self._outputs = [bytes(line) for line in checkpoint.outputs]
        self._outputs_bytes = sum(len(line) + 1 for line in self._outputs)
        self._journal = checkpoint.journal
        summary = self._runs.summary(checkpoint.run_id)
        if summary is not None:
            check_alone(self._state.path, checkpoint)
            return Loaded(checkpoint=checkpoint, finished=summary)
        check_tail(self._state.path, checkpoint)
        return Loaded(checkpoint=checkpoint)

    def _begin_fresh(self) -> None:
        # Never the number of the run before: its state.json, put back, must not fit the journal of another.
        names = [*names_in(self.folder), *(ended.journal for ended in self.summaries()[:1])]
        numbers = [number for name in names if (number := journal_number(name)) is not None]
        self._close_journal()
        self._state.forget()
        self._seq = 0
        self._outputs, self._outputs_bytes = [], 0
        self._journal = Journal(journal_name(max(numbers, default=0) + 1), 0)

    @property
    def _journal_path(self) -> Path:
        return self.folder / self._journal.name

    @contextmanager
    def _records(self) -> Iterator[Records]:
        with JournalLines(self._journal_path) as lines:
            yield Records(lines, self._journal.length, self._outputs, newest_seq=self._seq)

    def scan(self) -> Iterator[tuple[int, Record]]:
        assert self._seq is not None
        with self._records() as records:
            yield from records.scan()

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        with self._records() as records:
            yield from records.read(refs)

    def size(self, refs: Iterable[int] | None = None) -> int:
        if refs is None:
            return self._journal.length + self._outputs_bytes
        with self._records() as records:
            return sum(len(records.line(ref)) + 1 for ref in refs)

    # ---- committing

    def commit(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> list[int]:
        return self.begin(checkpoint, records)()

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        """Everything but the fsyncs and the rename: writing to the system's memory is quick, and nobody's state yet."""
        self._refuse_unless_next(seq := checkpoint.seq)
        lines, refs = [], []
        ref = self._journal.length + self._outputs_bytes
        for record in records:
            record.seq = seq
            lines.append(line := encode_record(record))
            refs.append(ref)
            ref += len(line) + 1
        outputs, journal = [*self._outputs, *lines], self._journal
        is_flushed = ref - journal.length > self._redo_limit_bytes
        try:
            if is_flushed:
                journal, outputs = self._write_journal(outputs), []
            checkpoint.outputs, checkpoint.journal = list(map(Raw, outputs)), journal
            written = self._state.write(encode_checkpoint(checkpoint))
        except OSError as error:
            raise self._break(error) from error

        def sync() -> list[int]:
            try:
                if is_flushed:
                    self._sync_journal(before=written)
                self._replace_state(written, seq)
            except OSError as error:
                raise self._break(error) from error
            self._outputs, self._outputs_bytes = outputs, ref - journal.length
            self._journal = journal
            return refs

        return sync

    def _refuse_unless_next(self, seq: int) -> None:
        self._refuse_if_broken()
        if self._seq is None or seq != self._seq + 1:
            raise CheckpointError(
                f"{self._state.path}: seq {seq} does not follow the stored {self._seq}; another program wrote here"
            )
        self._refuse_if_replaced()

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise DiskError(f"{self.folder}: an earlier write failed ({self._broken.message})")

    def _refuse_if_replaced(self) -> None:
        if not self._state.is_as_left():
            raise CheckpointError(f"{self._state.path}: was replaced by another program while this one was running")

    def _break(self, error: OSError, where: Path | None = None) -> DiskError:
        """After a failed write the store refuses everything further: the kernel may call lost pages clean, and the
        next fsync would report success."""
        self._broken = disk_error(where or self.folder, error)
        return self._broken

    @contextmanager
    def _breaking(self, where: Path | None = None) -> Iterator[None]:
        self._refuse_if_broken()
        try:
            yield
        except OSError as error:
            raise self._break(error, where) from error

    def _write_journal(self, outputs: Sequence[bytes]) -> Journal:
        """Append `outputs` at the journal's length; nothing names these bytes yet."""
        text = b"".join(line + b"\n" for line in outputs)
        if self._journal_fd is None:
            self._journal_fd = open_journal(self._disk, self._journal_path, self._journal.length)
            self._journal_is_new = True
        self._disk.write(self._journal_fd, text, self._journal.length)
        return Journal(self._journal.name, self._journal.length + len(text))

    def _sync_journal(self, *, before: Written | None = None) -> None:
        """Before anything that counts on the journal's new length gets its name; the journal's own entry too."""
        assert self._journal_fd is not None
        try:
            if self._journal_is_new:
                self._sync_folder()
                self._journal_is_new = False
            self._disk.fsync(self._journal_fd)
        except BaseException:
            if before is not None:
                self._state.drop(before)
            raise

    def _replace_state(self, new: Written, seq: int) -> None:
        assert self._folder_fd is not None
        self._state.replace(new, self._folder_fd)
        self._seq = seq

    def _sync_folder(self) -> None:
        assert self._folder_fd is not None
        self._disk.fsync(self._folder_fd)

    def _close_journal(self) -> None:
        if self._journal_fd is not None:
            os.close(self._journal_fd)
            self._journal_fd = None

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        self._refuse_unless_next(checkpoint.seq)
        number = journal_number(self._journal.name)
        assert number is not None
        name, old = journal_name(number + 1), self._journal_path
        # Those of `outputs` come last, and follow the journal as before.
        in_journal = [ref for ref in refs if ref < self._journal.length]
        new_refs: list[int] = []
        with self._records() as records:
            outputs = [records.line(ref) for ref in refs[len(in_journal) :]]
            lines = with_places((records.line(ref) for ref in in_journal), new_refs.append)
            with self._breaking():
                # A stray one of a launch that died here may be in the way.
                if os.path.lexists(self.folder / name):
                    self._disk.unlink(str(self.folder / name))
                length = write_journal(self._disk, self.folder / name, lines)
                self._sync_folder()
                checkpoint.outputs, checkpoint.journal = list(map(Raw, outputs)), Journal(name, length)
                self._replace_state(self._state.write(encode_checkpoint(checkpoint)), checkpoint.seq)
        for line in outputs:
            new_refs.append(length)
            length += len(line) + 1
        self._journal = checkpoint.journal
        self._outputs, self._outputs_bytes = outputs, length - self._journal.length
        self._close_journal()
        discard(self._disk, str(old))
        return new_refs

    # ---- the end of a run

    def finish(self, summary: Summary) -> None:
        self._refuse_if_broken()
        self._refuse_if_replaced()
        with self._breaking():
            if self._outputs and self._runs.summary(summary.run_id) is None:
                # The recent outputs move to the journal, which is filed. state.json still has them until it is gone.
                self._journal = self._write_journal(self._outputs)
                self._sync_journal()
            # Nothing past the length is data in the journal that is filed, either.
            filed = structs.replace(summary, journal=self._journal.name, journal_length=self._journal.length)
            # From here on the run is finished, whatever happens: a state.json with a summary is not resumed.
            self._runs.file(filed, self._journal_path)
            # Also the entry of runs/ itself, and the journal's, which is gone from here.
            self._sync_folder()
            self._state.unlink()
            self._sync_folder()
        self._begin_fresh()

    def reopen(self, run_id: str) -> Checkpoint | None:
        summary = self._runs.summary(run_id) if is_run_id(run_id) else None
        filed = self._runs.journal(run_id)
        if summary is None or not (filed.exists() or summary.journal_length == 0):
            return None
        if self._state.exists():
            raise CheckpointError(f"{self._state.path}: belongs to an unfinished run; finish that one first")
        self._begin_fresh()
        with self._breaking():
            # No state.json names it before the first commit does: a crash leaves a stray file, which is pruned.
            length = write_journal(self._disk, self._journal_path, filed_lines(filed, summary.journal_length))
            self._sync_folder()
        self._journal.length = length
        self._seq = highest_seq(filed_lines(filed, summary.journal_length))
        return checkpoint_from(summary, seq=self._seq)

    def set_aside(self) -> str:
        """Move a state that cannot be read, and its journals, into runs/ under a name of its own."""
        from agentrun.values.clock import new_run_id

        name = f"{new_run_id()}-set-aside"
        with self._breaking():
            files = {self.folder / journal: f"{name}.{journal}" for journal in journals_in(self.folder)}
            if self._state.exists():
                files[self._state.path] = f"{name}.state"
            self._runs.put_aside(files)
            self._sync_folder()
        self._begin_fresh()
        return f"runs/{name}.*"

    def summaries(self) -> list[Summary]:
        return self._runs.summaries()

    def prune(self, *, keep: Collection[str] = ()) -> None:
        self._runs.prune()
        for name in names_in(self.folder):
            is_old_journal = journal_number(name) is not None and name != self._journal.name
            is_old_spool = name.endswith(".spool") and name not in keep
            if is_old_journal or is_old_spool or is_temporary(name):
                discard(self._disk, str(self.folder / name))
        self._inbox.prune()

    def clear(self) -> None:
        import shutil

        self._history.close()
        for name in names_in(self.folder):
            path = self.folder / name
            if name == "lock":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._begin_fresh()

    # ---- the inbox

    def post(self, messages: Sequence[AnyMessage]) -> None:
        self._inbox.post(messages)

    def inbox(self) -> list[Posted]:
        return self._inbox.messages()

    def drop(self, names: Iterable[str]) -> None:
        self._inbox.drop(names)

    # ---- beside the run

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        with self._breaking(self.folder / name):
            self._sides.keep(name, chunks)

    def fetch(self, name: str) -> Iterator[bytes] | None:
        return self._sides.fetch(name)

    def note(self, event: HistoryEvent) -> None:
        self._history.add(event)

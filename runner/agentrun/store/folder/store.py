"""The default store: a folder with an atomically replaced state.json and a journal.

A commit costs one file fsync and one folder fsync; the journal is written when the redo part (`outputs`) passes its
limit. Crash windows and invariants: runner/DESIGN.md.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Raw, structs

from agentrun.checkpoint.checkpoint import Checkpoint, Journal, encode_checkpoint
from agentrun.checkpoint.message import AnyMessage
from agentrun.checkpoint.record import Record, encode_record
from agentrun.checkpoint.summary import Summary
from agentrun.errors import CheckpointError, DiskError, UsageError
from agentrun.store.folder.inbox import Inbox
from agentrun.store.folder.journal import (
    JournalFile,
    JournalLines,
    Records,
    journal_name,
    journal_number,
    with_places,
    write_journal,
)
from agentrun.store.folder.moving import Adoption, read_contents
from agentrun.store.folder.reader import FolderReader
from agentrun.store.folder.rollback import check_alone, check_missing, check_tail, journals_in
from agentrun.store.folder.runs import Runs
from agentrun.store.folder.sides import SideFiles
from agentrun.store.folder.state import StateFile, read_checkpoint, refusal, replaced
from agentrun.store.local.history import History
from agentrun.store.local.lock import FolderLease, Lock, live_holder, signal_holder
from agentrun.store.local.place import check_place, empty_place, make_place
from agentrun.store.port import PRUNED_SIDES, Contents, HistoryEvent, Holder, Loaded, Posted, Store, Sync, sides_named
from agentrun.store.salvage import Salvage
from agentrun.system.disk import (
    Disk,
    Held,
    discard,
    disk_error,
    first_moved,
    is_temporary,
    names_in,
)
from agentrun.values.clock import new_run_id

REDO_LIMIT_BYTES = 16 * 1024


class FolderStore(Store):
    """`folder` is made by `lock`; reading needs neither."""

    folder: Path

    def __init__(self, folder: Path, *, disk: Disk | None = None, redo_limit_bytes: int = REDO_LIMIT_BYTES) -> None:
        self.folder = folder
        self._disk = disk or Disk()
        self._redo_limit_bytes = redo_limit_bytes
        self._inbox = Inbox(folder, self._disk)
        self._runs, self._state = Runs(folder, self._disk), StateFile(folder, self._disk)
        self._history = History(folder, self._disk)
        self._sides = SideFiles(folder, self._disk)
        self._adoption = Adoption(folder, self._runs, self._disk)
        self._seq: int | None = None
        self._outputs: list[bytes] = []
        self._outputs_bytes = 0
        self._journal, self._journal_file = Journal("", 0), JournalFile(self._disk)
        self._lock: Held | None = None
        self._home: Held | None = None
        """The folder itself."""
        self._broken: DiskError | None = None

    # ---- the lock

    def lock(self, *, wait_seconds: float = 5.0) -> FolderLease:
        try:
            make_place(self._disk, self.folder)
            lease = Lock(self.folder, self._disk).acquire(wait_seconds=wait_seconds, on_release=self._close)
            self._lock = lease.held
            self._home = Held(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(self.folder))
            self._disk.reserve()
            # What an import left that died when the job was there already.
            self._adoption.finish()
        except OSError as error:
            raise disk_error(error.filename or self.folder, error) from error
        return lease

    def _close(self) -> None:
        self._journal_file.close()
        self._state.forget()
        if self._home is not None:
            self._home.close()
        self._lock = self._home = None
        self._disk.release()
        self._history.close()

    # ---- reading

    def _check_place(self) -> None:
        """Before anything is read: nobody else can have put it there. `lock` has checked it for the launch."""
        if self._home is None:
            check_place(self.folder)

    def reader(self, *, accept_edits: bool = False, run_id: str = "") -> FolderReader:
        self._check_place()
        return FolderReader(self.folder, accept_edits=accept_edits, run_id=run_id)

    def holder(self) -> Holder | None:
        self._check_place()
        return live_holder(self.folder)

    def ask_to_stop(self, holder: Holder) -> None:
        self._check_place()
        signal_holder(self.folder, holder)

    def load(self, *, accept_edits: bool = False) -> Loaded:
        """Read and check the state, changing nothing on disk."""
        self._check_place()
        try:
            text = self._state.read(hold=self._lock is not None)
        except FileNotFoundError:
            self._begin_fresh()
            check_missing(self._state.path, self._runs)
            return Loaded()
        except OSError as error:
            raise disk_error(self._state.path, error) from error
        checkpoint = read_checkpoint(text, self._state.path, accept_edits=accept_edits)
        self._journal_file.close()
        self._seq = checkpoint.seq
        self._outputs = [bytes(line) for line in checkpoint.outputs]
        self._outputs_bytes = sum(len(line) + 1 for line in self._outputs)
        self._journal = checkpoint.journal
        if (summary := self._runs.summary(checkpoint.run_id)) is not None:
            check_alone(self._state.path, checkpoint)
            return Loaded(checkpoint=checkpoint, finished=summary)
        check_tail(self._state.path, checkpoint)
        return Loaded(checkpoint=checkpoint)

    def _begin_fresh(self) -> None:
        # Never the number of the run before: its state.json, put back, must not fit the journal of another.
        names = [*names_in(self.folder), *(ended.journal for ended in self.summaries())]
        numbers = [number for name in names if (number := journal_number(name)) is not None]
        self._journal_file.close()
        self._state.forget()
        self._seq, self._outputs, self._outputs_bytes = 0, [], 0
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
            self._journal, self._outputs, self._outputs_bytes = journal, outputs, ref - journal.length
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
        """Before anything is written: the lock is the one we signed, and state.json the one we read or wrote."""
        assert self._lock is not None and self._home is not None
        state = self._state.held
        if (moved := first_moved(self._lock, self._home, *([state] if state else []))) is not None:
            raise refusal(moved)
        if state is None and self._state.exists():
            raise replaced(self._state.path)

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
        self._journal_file.append(self._journal_path, self._journal.length, text)
        return Journal(self._journal.name, self._journal.length + len(text))

    def _sync_journal(self, *, before: Held | None = None) -> None:
        """Before anything that counts on the journal's new length gets its name; the journal's own entry too."""
        try:
            assert self._home is not None
            self._journal_file.sync(self._home)
        except BaseException:
            if before is not None:
                self._state.drop(before)
            raise

    def _replace_state(self, new: Held, seq: int) -> None:
        assert self._home is not None and self._lock is not None
        self._state.replace(new, self._home, self._lock)
        self._seq = seq

    def _sync_folder(self) -> None:
        assert self._home is not None
        self._home.stat()
        self._disk.fsync(self._home.fd)

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
        self._journal_file.close()
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

    def reopen(self, records: Iterable[Record], *, seq: int) -> Sequence[int]:
        if self._state.exists():
            raise CheckpointError(f"{self._state.path}: belongs to an unfinished run; finish that one first")
        self._begin_fresh()
        refs = array("Q")
        with self._breaking():
            # No state.json names it before the first commit does: a crash leaves a stray file, which is pruned.
            lines = with_places(map(encode_record, records), refs.append)
            self._journal.length = write_journal(self._disk, self._journal_path, lines)
            self._sync_folder()
        self._seq = seq
        return refs

    def set_aside(self) -> str:
        """Move a state that cannot be read, and its journals, into runs/ under a name of its own."""
        name = f"{new_run_id()}-set-aside"
        with self._breaking():
            files = {self.folder / journal: f"{name}.{journal}" for journal in journals_in(self.folder)}
            if self._state.exists():
                files[self._state.path] = f"{name}.state"
            self._runs.put_aside(files)
            self._sync_folder()
        self._begin_fresh()
        return f"runs/{name}.*"

    def salvage(self) -> Salvage:
        from agentrun.store.folder.repair import FolderSalvage

        return FolderSalvage(self, self.folder, self._disk)

    def summaries(self) -> list[Summary]:
        self._check_place()
        return self._runs.summaries()

    def prune(self, *, keep: Collection[str] = ()) -> None:
        self._runs.prune()
        kept = {*keep, *sides_named(self.summaries())}
        for name in names_in(self.folder):
            is_old_journal = journal_number(name) is not None and name != self._journal.name
            is_old_side = name.endswith(PRUNED_SIDES) and name not in kept
            if is_old_journal or is_old_side or is_temporary(name):
                discard(self._disk, str(self.folder / name))
        self._inbox.prune()
        self._adoption.sweep()

    def clear(self) -> None:
        self._history.close()
        empty_place(self.folder)
        self._begin_fresh()

    # ---- the inbox

    def post(self, messages: Sequence[AnyMessage]) -> None:
        self._check_place()
        self._inbox.post(messages)

    def inbox(self) -> list[Posted]:
        self._check_place()
        return self._inbox.messages()

    def claim(self, names: Iterable[str]) -> set[str]:
        return self._inbox.claim(names)

    def withdraw(self, name: str) -> bool:
        return self._inbox.withdraw(name)

    def drop(self, names: Iterable[str]) -> None:
        self._inbox.drop(names)

    # ---- beside the run

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        with self._breaking(self.folder / name):
            self._sides.keep(name, chunks)

    def fetch(self, name: str) -> Iterator[bytes] | None:
        self._check_place()
        return self._sides.fetch(name)

    def forget(self, name: str) -> None:
        with self._breaking(self.folder / name):
            if os.path.lexists(self.folder / name):
                self._disk.unlink(str(self.folder / name))
                self._sync_folder()

    def note(self, event: HistoryEvent) -> None:
        self._history.add(event)

    # ---- moving

    def contents(self) -> Contents:
        loaded = self.load(accept_edits=True) if self._state.exists() else Loaded()
        if loaded.finished is not None:
            raise CheckpointError(f"{self._state.path}: belongs to a run that has finished; finish that one first")
        return read_contents(self.folder, self._runs, loaded.checkpoint, list(self._outputs), self.inbox())

    def adopt(self, contents: Contents, *, replace: bool = False) -> None:
        if not replace and (self._state.exists() or self._runs.summaries()):
            raise UsageError(f"{self.folder}: has runs already; clear it first")
        self._refuse_if_broken()
        self._refuse_if_replaced()
        with self._breaking():
            self._adoption.stage(contents)
            self._journal_file.close()
            self._state.forget()
            self._seq = None
            self._adoption.finish()

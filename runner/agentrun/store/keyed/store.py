"""The store port on a home: one job in a database, a bucket, or a file that keeps many jobs.

A commit is one conditional write, fenced by the epoch of the lease and by the seq before. Crash windows and
invariants: runner/DESIGN.md.
"""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, Journal, decode_checkpoint, encode_checkpoint
from agentrun.checkpoint.message import AnyMessage
from agentrun.checkpoint.record import Record, encode_record
from agentrun.checkpoint.summary import Summary, encode_summary, last_finished
from agentrun.errors import CheckpointError, LostError, StoreError
from agentrun.store.emptied import check_not_emptied
from agentrun.store.glance import Glance
from agentrun.store.keyed.aside import put_aside
from agentrun.store.keyed.glancing import glance
from agentrun.store.keyed.home import Commit, EndedRun, Head, Home, in_batches, in_pieces
from agentrun.store.keyed.inbox import KeyedInbox
from agentrun.store.keyed.lease import KeyedLease, has_lock, holder_of, lease_clock
from agentrun.store.keyed.moving import read_contents, refuse_unless_empty, write_contents
from agentrun.store.keyed.patience import Patience
from agentrun.store.keyed.reader import WHAT_TO_DO, KeyedReader, read_summaries
from agentrun.store.keyed.records import KeyedRecords
from agentrun.store.keyed.sealed import SealedHome
from agentrun.store.keyed.taking import Timing as Timing
from agentrun.store.keyed.taking import take_lease
from agentrun.store.local.history import History
from agentrun.store.local.lock import Lock, signal_holder
from agentrun.store.local.place import empty_place, make_place
from agentrun.store.local.pointer import write_pointer
from agentrun.store.port import PRUNED_SIDES, Contents, HistoryEvent, Holder, Loaded, Posted, Store, Sync, sides_named
from agentrun.system.disk import PIECE_BYTES, Disk, discard, disk_error, names_in, open_to_read, replace_file

SIDE = "side/"
SUMMARIES_KEPT, JOURNALS_KEPT = 20, 3
T = TypeVar("T")


class KeyedStore(Store):
    """`folder` is the job's folder on this machine, for its logs, spools and scratch; the state is in the home."""

    folder: Path

    def __init__(self, home: Home, name: str, folder: Path, *, address: str = "", timing: Timing | None = None) -> None:
        self.home = home
        self.name = name
        self.folder = folder
        self.where = address or home.shown
        self.look_seconds = home.look_seconds
        self._address = address
        self._timing = timing or Timing()
        self._disk = Disk()
        self._inbox = KeyedInbox(home)
        self._history = History(folder, self._disk)
        self._lease: KeyedLease | None = None
        # Who only looks is told at once.
        self._patience = Patience(0.0)
        self._broken: Exception | None = None
        self._seq: int | None = None
        self._is_noted = False
        """Whether this launch has noted in the folder where the state is."""
        self._has_run = False
        """Whether the place has a state; before the first commit of a run it has none."""
        self._journal, self._length = "", 0
        self._in_use: set[str] = set()
        """The journals that this launch found named, or has made: readers may still be at them."""

    # ---- the lease

    def lock(self, *, wait_seconds: float = 5.0) -> KeyedLease:
        deadline = time.monotonic() + wait_seconds
        try:
            make_place(self._disk, self.folder)
            local = Lock(self.folder, self._disk).acquire(wait_seconds=wait_seconds)
        except OSError as error:
            raise disk_error(error.filename or self.folder, error) from error
        try:
            self._lease = take_lease(
                self.home, self.name, local, self._timing, deadline=deadline, on_release=self._close
            )
        except BaseException:
            local.release()
            raise
        self._broken, self._seq, self._is_noted = None, None, False
        self._patience = Patience(self._timing.patience_seconds)
        self._in_use, self._inbox = set(), KeyedInbox(self.home)
        return self._lease

    def _close(self) -> None:
        self._lease, self._patience = None, Patience(0.0)
        self._history.close()

    @property
    def _epoch(self) -> int:
        assert self._lease is not None
        return self._lease.epoch

    # ---- reading

    def reader(self, *, accept_edits: bool = False, run_id: str = "") -> KeyedReader:
        # With an inbox of its own: a reader may be used in another thread.
        inbox = KeyedInbox(self.home)
        return KeyedReader(
            self.name,
            self.home,
            inbox,
            self.folder,
            accept_edits=accept_edits,
            run_id=run_id,
            patience_seconds=self._patience_seconds,
        )

    @property
    def is_sealed(self) -> bool:
        return isinstance(self.home, SealedHome)

    def glance(self) -> Glance:
        return glance(self.home, self.folder)

    def holder(self) -> Holder | None:
        return holder_of(self.home.head(), self.folder)

    def ask_to_stop(self, holder: Holder) -> None:
        if has_lock(holder, self.folder):
            signal_holder(self.folder, holder)
        else:
            self._inbox.ask_to_stop(holder.mark)

    def load(self, *, accept_edits: bool = False) -> Loaded:
        head = self._insist(self.home.head)
        if self._lease is not None and head.epoch != self._lease.epoch:
            raise self._lost(head)
        if head.state is None:
            self._begin_fresh()
            self._in_use |= self._named()
            self._refuse_if_emptied()
            return Loaded()
        found = decode_checkpoint(head.state, where=self.home.shown, accept_edits=accept_edits, what_to_do=WHAT_TO_DO)
        self._seq, self._has_run = found.seq, True
        self._journal, self._length = found.journal.name, found.journal.length
        self._in_use |= self._named()
        return Loaded(checkpoint=found)

    def _refuse_if_emptied(self) -> None:
        """Everything would be run again."""
        if not self.summaries():
            check_not_emptied(self)

    def _begin_fresh(self) -> None:
        self._seq, self._has_run = 0, False
        self._journal, self._length = self._new_journal(), 0

    def _new_journal(self) -> str:
        # Of this launch alone: one that has lost the job cannot add to it.
        name = f"{self._lease.epoch if self._lease is not None else 0:08d}-{secrets.token_hex(4)}"
        self._in_use.add(name)
        return name

    @property
    def _records(self) -> KeyedRecords:
        return KeyedRecords(self.home, self._journal, self._length, patience_seconds=self._patience_seconds)

    def scan(self) -> Iterator[tuple[int, Record]]:
        return self._records.scan()

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return self._records.read(refs)

    def size(self, refs: Iterable[int] | None = None) -> int:
        if refs is None:
            return self._insist(lambda: self.home.size(self._journal)) if self._length else 0
        return self._records.size(refs)

    # ---- committing

    def commit(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> list[int]:
        return self.begin(checkpoint, records)()

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        for record in records:
            record.seq = checkpoint.seq
        lines = list(map(encode_record, records))
        return self._begin(checkpoint, self._journal, self._length, lines)

    def _begin(self, checkpoint: Checkpoint, journal: str, first_ref: int, lines: Sequence[bytes]) -> Sync:
        seq, length = checkpoint.seq, first_ref + len(lines)
        self._refuse_unless_next(seq)
        checkpoint.outputs, checkpoint.journal = [], Journal(journal, length)
        made = Commit(
            seq=seq,
            state=encode_checkpoint(checkpoint),
            run_id=checkpoint.run_id,
            journal=journal,
            first_ref=first_ref,
            lines=lines,
            is_first=not self._has_run,
        )

        def sync() -> list[int]:
            # Before it is there: a run that was begun in a store is never begun again in the folder.
            self._note_here()
            with self._breaking():
                self._send(made)
            self._note_here(made.run_id)
            self._seq, self._has_run, self._journal, self._length = seq, True, journal, length
            return list(range(first_ref, length))

        return sync

    def _note_here(self, run_id: str = "") -> None:
        if self._address and not self._is_noted:
            write_pointer(self.folder, self._address, run_id=run_id)
            self._is_noted = bool(run_id)

    def _refuse_unless_next(self, seq: int) -> None:
        self._refuse_if_broken()
        if self._seq is None or seq != self._seq + 1:
            raise CheckpointError(
                f"{self.home.shown}: seq {seq} does not follow the stored {self._seq}; another program wrote here"
            )

    def _refuse_if_broken(self) -> None:
        if isinstance(self._broken, LostError):
            raise self._broken
        if self._broken is not None:
            raise StoreError(f"{self.home.shown}: an earlier write failed ({self._broken})")

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """After a write that failed the store refuses everything further."""
        self._refuse_if_broken()
        try:
            yield
        except (LostError, StoreError) as error:
            self._break(error)
            raise

    def _break(self, error: Exception) -> None:
        self._broken = error
        if isinstance(error, LostError) and self._lease is not None:
            self._lease.lost = error

    def _lost(self, head: Head) -> LostError:
        holder = holder_of(head, self.folder)
        who = f" ({holder.describe()})" if holder is not None else ""
        return LostError(
            f"{self.name}: another runner has taken this job over{who}, because this one did not renew its lease; "
            f"what was committed before that is kept"
        )

    def _send(self, commit: Commit) -> None:
        """Until the place says that it has it, or nobody can say so for too long."""
        assert self._lease is not None
        patience, sent_at = self._patience, lease_clock()
        while True:
            try:
                patience.ask(lambda: self.home.commit(self._epoch, commit, self._timing.lease_seconds))
                break
            except LostError:
                # Also if an earlier try of ours arrived late.
                head = patience.insist(self.home.head)
                if head.epoch == self._lease.epoch and head.seq == commit.seq and head.state == commit.state:
                    break
                raise self._lost(head) from None
            except StoreError as error:
                patience.after(error)
            looked_at = lease_clock()
            head = patience.insist(self.home.head)
            if head.epoch != self._lease.epoch:
                raise self._lost(head)
            if head.seq == commit.seq and head.state == commit.state:
                break
            # A try that was not there at the look can only have come after it.
            sent_at = looked_at
        self._lease.renewed(sent_at)
        patience.is_accepted = True
        patience.end_outage()

    def _insist(self, call: Callable[[], T]) -> T:
        answer = self._patience.insist(call)
        self._patience.end_outage()
        return answer

    @property
    def trouble(self) -> str:
        return self._patience.trouble

    @property
    def _patience_seconds(self) -> float:
        return self._timing.patience_seconds if self._lease is not None else 0.0

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        self._refuse_unless_next(checkpoint.seq)
        journal = self._new_journal()
        with self._breaking():
            length = self._stage(journal, (line for _, line in self._records.lines(refs)))
        # The records before stay for those who read them; a later launch removes them.
        self._begin(checkpoint, journal, length, [])()
        return list(range(length))

    def _stage(self, journal: str, lines: Iterable[bytes]) -> int:
        """Put the lines into a journal that nothing names yet; return how many they were."""
        length = 0
        for some in in_batches(lines):
            length = self._stage_some(journal, length, some)
        return length

    def _stage_some(self, journal: str, first_ref: int, lines: list[bytes]) -> int:
        self._insist(lambda: self.home.stage(journal, first_ref, lines))
        return first_ref + len(lines)

    # ---- the end of a run

    def finish(self, summary: Summary) -> None:
        filed = structs.replace(summary, journal=self._journal, journal_length=self._length)
        run = EndedRun(summary.run_id, self._journal, encode_summary(filed))
        with self._breaking():
            self._insist(lambda: self.home.finish(self._epoch, run))
        self._begin_fresh()

    def reopen(self, records: Iterable[Record], *, seq: int) -> Sequence[int]:
        if self._has_run:
            raise CheckpointError(f"{self.home.shown}: has an unfinished run; finish that one first")
        self._begin_fresh()
        with self._breaking():
            self._length = self._stage(self._journal, map(encode_record, records))
        self._seq = seq
        return array("Q", range(self._length))

    def set_aside(self) -> str:
        """Keep a state that cannot be read, and the journals that no run has, as side files, as they are stored.

        The same goes for the runs that ended, if one of their summaries cannot be read.
        """
        with self._breaking():
            where = put_aside(self.home, self._epoch)
        self._begin_fresh()
        return where

    def summaries(self) -> list[Summary]:
        return self._insist(lambda: read_summaries(self.home))

    def _named(self) -> set[str]:
        """The journals that are needed: that of the unfinished run, and those of the runs whose records are kept."""
        ended = self.summaries()
        kept = [*ended[:JOURNALS_KEPT], *filter(None, [last_finished(ended)])]
        return {self._journal, *(one.journal for one in kept)}

    def prune(self, *, keep: Collection[str] = ()) -> None:
        ended = self.summaries()
        last = last_finished(ended)
        old = [one.run_id for one in ended[SUMMARIES_KEPT:] if one is not last]
        unused = self._insist(self.home.journals) - self._named() - self._in_use
        with self._breaking():
            if old or unused:
                self._insist(lambda: self.home.forget(self._epoch, runs=old, journals=unused))
            kept = {*keep, *sides_named([one for one in ended if one.run_id not in old])}
            sides = [
                name
                for name in self._insist(lambda: self.home.names(SIDE))
                if name.endswith(PRUNED_SIDES) and name.removeprefix(SIDE) not in kept
            ]
            if sides:
                self._insist(lambda: self.home.drop(sides, epoch=self._epoch))
            if self._lease is not None:
                mark = self._lease.mark
                self._insist(lambda: self._inbox.sweep(epoch=self._epoch, mark=mark))
        for name in names_in(self.folder):
            if name.endswith(".spool") and name not in kept:
                discard(self._disk, str(self.folder / name))

    def clear(self) -> None:
        with self._breaking():
            self._insist(lambda: self.home.clear(self._epoch))
        self._history.close()
        empty_place(self.folder)
        self._begin_fresh()

    # ---- the inbox

    def post(self, messages: Sequence[AnyMessage]) -> None:
        self._inbox.post(messages)

    def inbox(self) -> list[Posted]:
        found = self._insist(self._inbox.messages)
        if self._lease is not None:
            self._lease.ask_to_stop(self._inbox.stops.count(self._lease.mark))
        return found

    def claim(self, names: Iterable[str]) -> set[str]:
        wanted = list(names)
        return self._insist(lambda: self._inbox.claim(wanted))

    def withdraw(self, name: str) -> bool:
        return self._inbox.withdraw(name)

    def drop(self, names: Iterable[str]) -> None:
        wanted, epoch = list(names), self._lease.epoch if self._lease is not None else None
        self._insist(lambda: self._inbox.drop(wanted, epoch=epoch))

    # ---- beside the run

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        if not isinstance(chunks, Sequence):
            # Items may come from a pipe, once: a copy on this machine can be sent again.
            self._keep_here(name, chunks)
            chunks = _Pieces(self.folder / name)
        pieces = chunks
        with self._breaking():
            self._insist(lambda: self.home.put(SIDE + name, in_pieces(pieces), epoch=self._epoch))

    def _keep_here(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            replace_file(self._disk, self.folder / name, chunks)
        except OSError as error:
            raise disk_error(self.folder / name, error) from error

    def fetch(self, name: str) -> Iterator[bytes] | None:
        return self.home.get(SIDE + name)

    def forget(self, name: str) -> None:
        with self._breaking():
            self._insist(lambda: self.home.drop([SIDE + name], epoch=self._epoch))

    def note(self, event: HistoryEvent) -> None:
        self._history.add(event)

    # ---- moving

    def contents(self) -> Contents:
        found = self.load(accept_edits=True).checkpoint
        return read_contents(self.home, found, self.summaries(), self.inbox(), side=SIDE)

    def adopt(self, contents: Contents, *, replace: bool = False) -> None:
        if not replace:
            refuse_unless_empty(self.home)
        with self._breaking():
            finish = write_contents(self.home, contents, epoch=self._epoch, stage=self._stage_new, keep=self.keep)
            self._note_here()
            self._insist(finish)
        self._seq = None

    def _stage_new(self, lines: Iterable[bytes]) -> Journal:
        journal = self._new_journal()
        return Journal(journal, self._stage(journal, lines))


class _Pieces:
    """A file that can be read again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with open_to_read(self._path) as file:
            yield from iter(lambda: file.read(PIECE_BYTES), b"")

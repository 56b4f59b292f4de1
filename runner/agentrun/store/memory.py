"""A store that keeps everything in memory, for users' tests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import partial

from agentrun.checkpoint.checkpoint import Checkpoint, copy_checkpoint
from agentrun.checkpoint.message import AnyMessage, decode_message, encode_message
from agentrun.checkpoint.record import Record, decode_record, encode_record
from agentrun.checkpoint.summary import Summary, last_finished
from agentrun.errors import BusyError, CheckpointError, UsageError
from agentrun.store.contents import Contents, FiledRun, Letter, bare_checkpoint, bare_summary
from agentrun.store.port import (
    PRUNED_SIDES,
    HistoryEvent,
    Holder,
    Lease,
    Loaded,
    Posted,
    Reader,
    Store,
    Sync,
    sides_named,
)

RECORDS_KEPT = 3
"""Of how many runs that ended the records are kept."""


class MemoryStore(Store):
    """The contract of the folder store without the disk: hand the same one to the next launch to resume."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._guard = threading.RLock()
        self._holder: Holder | None = None
        self._checkpoint: Checkpoint | None = None
        self._records: list[bytes] = []
        self._first_seq = 0
        """Before the first commit of a run: the seq that it follows."""
        self._ended: list[Summary] = []
        self._filed: dict[str, list[bytes]] = {}
        self._inbox: dict[str, bytes] = {}
        self._claimed: set[str] = set()
        self._posted = 0
        self._kept: dict[str, bytes] = {}
        self.notes: list[HistoryEvent] = []

    def lock(self, *, wait_seconds: float = 5.0) -> Lease:
        if not self._lock.acquire(timeout=wait_seconds):
            raise BusyError("another runner has this store; wait for it")

        lease = _MemoryLease(self._release)
        self._holder = Holder.of_this_process(mark=lease.mark)
        return lease

    def _release(self) -> None:
        self._holder = None
        self._lock.release()

    def reader(self, *, accept_edits: bool = False, run_id: str = "") -> Reader:
        # Both are of one commit, though a runner may be at work in another thread.
        with self._guard:
            checkpoint, ended = self._checkpoint if not run_id else None, self.summaries()
            shown = next((one for one in ended if one.run_id == run_id or not run_id), None)
            if run_id and run_id not in self._filed:
                raise CheckpointError(f"the records of the run {run_id} are not kept")
            filed = self._filed.get(shown.run_id, []) if shown is not None else []
            records = list(self._records) if checkpoint is not None else filed
        return _MemoryReader(
            self._name,
            copy_checkpoint(checkpoint) if checkpoint is not None else None,
            shown if checkpoint is None else None,
            ended,
            records,
            self._holder,
            self.inbox,
            self.notes,
        )

    def holder(self) -> Holder | None:
        return self._holder

    def load(self, *, accept_edits: bool = False) -> Loaded:
        if self._checkpoint is None:
            self._records, self._first_seq = [], 0
            return Loaded()
        return Loaded(checkpoint=copy_checkpoint(self._checkpoint))

    def scan(self) -> Iterator[tuple[int, Record]]:
        for ref, line in enumerate(list(self._records)):
            yield ref, decode_record(line)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        for ref in refs:
            yield decode_record(self._records[ref])

    def commit(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> list[int]:
        return self.begin(checkpoint, records)()

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        stored = self._checkpoint.seq if self._checkpoint else self._first_seq
        if checkpoint.seq != stored + 1:
            raise CheckpointError(f"seq {checkpoint.seq} does not follow the stored {stored}")
        for record in records:
            record.seq = checkpoint.seq
        lines = [encode_record(record) for record in records]
        # A copy: what the caller does to theirs from now on is not committed.
        kept = copy_checkpoint(checkpoint)

        def sync() -> list[int]:
            if self._checkpoint is None and not self._first_seq:
                self._records = []
            first = len(self._records)
            with self._guard:
                self._records += lines
                self._checkpoint = kept
            return list(range(first, len(self._records)))

        return sync

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        kept = [self._records[ref] for ref in refs]
        with self._guard:
            self.commit(checkpoint)
            self._records = kept
        return list(range(len(kept)))

    def size(self, refs: Iterable[int] | None = None) -> int:
        return sum(len(self._records[ref]) + 1 for ref in (range(len(self._records)) if refs is None else refs))

    def finish(self, summary: Summary) -> None:
        with self._guard:
            if all(one.run_id != summary.run_id for one in self._ended):
                self._ended.append(deepcopy(summary))
                self._filed[summary.run_id] = list(self._records)
                ended = self.summaries()
                kept = {one.run_id for one in [*ended[:RECORDS_KEPT], *filter(None, [last_finished(ended)])]}
                self._filed = {run_id: lines for run_id, lines in self._filed.items() if run_id in kept}
            # The records can be read until the next run begins.
            self._checkpoint, self._first_seq = None, 0

    def set_aside(self) -> str:
        self._checkpoint, self._records, self._first_seq = None, [], 0
        return ""

    def prune(self, *, keep: Collection[str] = ()) -> None:
        kept = {*keep, *sides_named(self.summaries())}
        self._kept = {
            name: text for name, text in self._kept.items() if name in kept or not name.endswith(PRUNED_SIDES)
        }

    def summaries(self) -> list[Summary]:
        return sorted(self._ended, key=lambda summary: summary.age, reverse=True)

    def reopen(self, records: Iterable[Record], *, seq: int) -> Sequence[int]:
        if self._checkpoint is not None:
            raise CheckpointError("this store has an unfinished run; finish that one first")
        self._records, self._first_seq = [encode_record(record) for record in records], seq
        return range(len(self._records))

    def clear(self) -> None:
        self._checkpoint, self._records, self._ended, self._first_seq = None, [], [], 0
        self._filed.clear()
        self._inbox.clear()
        self._claimed.clear()
        self._kept.clear()
        self.notes.clear()

    def note(self, event: HistoryEvent) -> None:
        self.notes.append(event)

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        self._kept[name] = b"".join(chunks)

    def fetch(self, name: str) -> Iterator[bytes] | None:
        return iter([self._kept[name]]) if name in self._kept else None

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)

    def contents(self) -> Contents:
        checkpoint = bare_checkpoint(self._checkpoint) if self._checkpoint is not None else None
        records = list(self._records) if checkpoint is not None else []
        ended = [FiledRun(bare_summary(one), _again(self._filed.get(one.run_id))) for one in self.summaries()]
        return Contents(
            checkpoint=checkpoint,
            lines=lambda: records,
            ended=ended,
            sides={name: partial(list, [text]) for name, text in self._kept.items()},
            letters=[Letter(name, text) for name, text in self._inbox.items()],
        )

    def adopt(self, contents: Contents, *, replace: bool = False) -> None:
        if not replace and (self._checkpoint is not None or self._ended):
            raise UsageError(f"{self._name}: has runs already; clear it first")
        checkpoint = bare_checkpoint(contents.checkpoint) if contents.checkpoint is not None else None
        records = list(contents.lines())
        ended = [bare_summary(one.summary) for one in contents.ended]
        filed = {one.summary.run_id: list(one.lines()) for one in contents.ended if one.lines is not None}
        kept = {name: b"".join(pieces()) for name, pieces in contents.sides.items()}
        for letter in contents.letters:
            if letter.text not in self._inbox.values():
                self._posted += 1
                self._inbox[f"{self._posted:020d}"] = letter.text
        with self._guard:
            self._kept.update(kept)
            self._ended, self._filed = ended, filed
            self._checkpoint, self._records, self._first_seq = checkpoint, records, 0

    def post(self, messages: Sequence[AnyMessage]) -> None:
        texts = [encode_message(message) for message in messages]
        for text in texts:
            self._posted += 1
            self._inbox[f"{self._posted:020d}"] = text

    def inbox(self) -> list[Posted]:
        return [Posted(name, decode_message(text)) for name, text in list(self._inbox.items())]

    def claim(self, names: Iterable[str]) -> set[str]:
        with self._guard:
            found = {name for name in names if name in self._inbox}
            self._claimed |= found
        return found

    def withdraw(self, name: str) -> bool:
        with self._guard:
            return name not in self._claimed and self._inbox.pop(name, None) is not None

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._inbox.pop(name, None)
            self._claimed.discard(name)


def _again(lines: list[bytes] | None) -> Callable[[], list[bytes]] | None:
    return (lambda: lines) if lines is not None else None


class _MemoryLease(Lease):
    def __init__(self, release: Callable[[], None]) -> None:
        self.mark = secrets.token_hex(8)
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


class _MemoryReader(Reader):
    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint | None,
        summary: Summary | None,
        ended: list[Summary],
        records: list[bytes],
        holder: Holder | None,
        inbox: Callable[[], list[Posted]],
        notes: Sequence[HistoryEvent],
    ) -> None:
        self.name = name
        self.checkpoint, self.summary, self.summaries = checkpoint, summary, ended
        self._records, self._holder, self._inbox, self._notes = records, holder, inbox, notes

    def records(self, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        for ref, line in enumerate(self._records[since:], since):
            yield ref, decode_record(line)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        for ref in refs:
            yield decode_record(self._records[ref])

    def holder(self) -> Holder | None:
        return self._holder

    def inbox(self) -> list[Posted]:
        return self._inbox()

    def history(self, *, recent: bool = False) -> Iterator[HistoryEvent]:
        return iter(list(self._notes))

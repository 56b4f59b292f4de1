"""The smallest store that keeps the contract: one file, and nothing but the port's abstract methods."""

from __future__ import annotations

import fcntl
import os
import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from agentrun.checkpoint.message import AnyMessage, decode_message, encode_message
from agentrun.checkpoint.record import Record, decode_record, encode_record
from agentrun.checkpoint.summary import Summary, decode_summary, encode_summary
from agentrun.errors import BusyError, CheckpointError
from agentrun.store.port import Holder, Lease, Loaded, Posted, Reader, Store


@dataclass
class Content:
    """All that the file holds."""

    state: bytes | None = None
    lines: list[bytes] = field(default_factory=list)
    ended: list[tuple[bytes, list[bytes]]] = field(default_factory=list)
    inbox: dict[str, bytes] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    posted: int = 0
    kept: dict[str, bytes] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Checkpoint | None:
        return decode_checkpoint(self.state, where="the file") if self.state is not None else None

    @property
    def filed(self) -> list[tuple[Summary, list[bytes]]]:
        """Newest first."""
        found = [(summary, lines) for text, lines in self.ended if (summary := decode_summary(text)) is not None]
        return sorted(found, key=lambda one: one[0].age, reverse=True)

    @property
    def summaries(self) -> list[Summary]:
        return [summary for summary, _ in self.filed]

    def messages(self) -> list[Posted]:
        return [Posted(name, decode_message(text)) for name, text in self.inbox.items()]


class SmallestStore(Store):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._seq = 0

    def _content(self) -> Content:
        try:
            found: Content = pickle.loads(self._path.read_bytes())
            return found
        except FileNotFoundError:
            return Content()

    def _save(self, content: Content) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(pickle.dumps(content))
        new.replace(self._path)

    def lock(self, *, wait_seconds: float = 5.0) -> Lease:
        fd = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return SmallestLease(fd)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise BusyError(f"{self._path}: another runner has this store; wait for it") from None
                time.sleep(0.01)

    def reader(self, *, accept_edits: bool = False, run_id: str = "") -> Reader:
        return SmallestReader(self._path, self._content(), self, run_id)

    def load(self, *, accept_edits: bool = False) -> Loaded:
        content = self._content()
        checkpoint = content.checkpoint
        self._lines, self._seq = (content.lines, checkpoint.seq) if checkpoint is not None else ([], 0)
        return Loaded(checkpoint)

    def scan(self) -> Iterator[tuple[int, Record]]:
        return ((ref, decode_record(line)) for ref, line in enumerate(self._lines))

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return (decode_record(self._lines[ref]) for ref in refs)

    def commit(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> list[int]:
        if checkpoint.seq != self._seq + 1:
            raise CheckpointError(f"seq {checkpoint.seq} does not follow the stored {self._seq}")
        for record in records:
            record.seq = checkpoint.seq
        content, first = self._content(), len(self._lines)
        content.state = encode_checkpoint(checkpoint)
        content.lines = [*self._lines, *map(encode_record, records)]
        self._save(content)
        self._lines, self._seq = content.lines, checkpoint.seq
        return list(range(first, len(self._lines)))

    def finish(self, summary: Summary) -> None:
        content = self._content()
        if all(one.run_id != summary.run_id for one in content.summaries):
            content.ended.append((encode_summary(summary), self._lines))
        content.state, content.lines = None, []
        self._save(content)
        self._lines, self._seq = [], 0

    def reopen(self, records: Iterable[Record], *, seq: int) -> Sequence[int]:
        if self._content().state is not None:
            raise CheckpointError(f"{self._path}: holds an unfinished run; finish that one first")
        self._lines, self._seq = [encode_record(record) for record in records], seq
        return range(len(self._lines))

    def summaries(self) -> list[Summary]:
        return self._content().summaries

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def post(self, messages: Sequence[AnyMessage]) -> None:
        content = self._content()
        for text in [encode_message(message) for message in messages]:
            content.posted += 1
            content.inbox[f"{content.posted:020d}"] = text
        self._save(content)

    def inbox(self) -> list[Posted]:
        return self._content().messages()

    def claim(self, names: Iterable[str]) -> set[str]:
        content = self._content()
        found = {name for name in names if name in content.inbox}
        content.claimed |= found
        self._save(content)
        return found

    def withdraw(self, name: str) -> bool:
        content = self._content()
        if name in content.claimed or content.inbox.pop(name, None) is None:
            return False
        self._save(content)
        return True

    def drop(self, names: Iterable[str]) -> None:
        content = self._content()
        for name in names:
            content.inbox.pop(name, None)
        self._save(content)

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        content = self._content()
        content.kept[name] = b"".join(chunks)
        self._save(content)

    def fetch(self, name: str) -> Iterator[bytes] | None:
        found = self._content().kept.get(name)
        return iter([found]) if found is not None else None


class SmallestLease(Lease):
    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self.mark = os.urandom(4).hex()
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {self.mark}".encode(), 0)

    def release(self) -> None:
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


class SmallestReader(Reader):
    def __init__(self, path: Path, content: Content, store: SmallestStore, run_id: str) -> None:
        self.name = path.stem
        self.checkpoint, self.summaries, self.summary = content.checkpoint, content.summaries, None
        self._lines = content.lines
        if run_id or self.checkpoint is None:
            ended = [one for one in content.filed if run_id in ("", one[0].run_id)]
            if run_id and not ended:
                raise CheckpointError(f"{path}: the records of the run {run_id} are not kept")
            self.checkpoint, (self.summary, self._lines) = None, ended[0] if ended else (None, [])
        self._path, self._store = path, store

    def records(self, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        return ((ref, decode_record(line)) for ref, line in enumerate(self._lines) if ref >= since)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return (decode_record(self._lines[ref]) for ref in refs)

    def holder(self) -> Holder | None:
        lock = self._path.with_suffix(".lock")
        words = lock.read_text().split() if lock.exists() else []
        return Holder(pid=int(words[0]), host="", since="", mark=words[1]) if words else None

    def inbox(self) -> list[Posted]:
        return self._store.inbox()

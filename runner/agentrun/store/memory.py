"""A store that keeps everything in memory, for users' tests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.message import decode_message, encode_message
from agentrun.checkpoint.record import decode_record, encode_record, highest_seq
from agentrun.checkpoint.summary import checkpoint_from
from agentrun.errors import BusyError, CheckpointError
from agentrun.store.port import Entry, Loaded, Posted, Sync

JOURNALS_KEPT = 3


class MemoryStore:
    """The contract of the folder store without the disk: hand the same one to the next launch to resume."""

    def __init__(self) -> None:
        self._held = threading.Lock()
        self._checkpoint: Checkpoint | None = None
        self._records: list[bytes] = []
        self._first_seq = 0
        """Before the first commit of a run: the seq that it follows."""
        self._ended: list[dict[str, Any]] = []
        self._filed: dict[str, list[bytes]] = {}
        self._inbox: dict[str, bytes] = {}
        self._posted = 0
        self.kept: dict[str, bytes] = {}
        self.notes: list[dict[str, Any]] = []

    @property
    def folder(self) -> Path | None:
        return None

    @property
    def lock_fd(self) -> int | None:
        return None

    @property
    def mark(self) -> str:
        return secrets.token_hex(8)

    @property
    def left_mark(self) -> str:
        return ""

    def lock(self, *, wait_seconds: float = 5.0) -> None:
        if not self._held.acquire(timeout=wait_seconds):
            raise BusyError("another runner has this store; wait for it")

    def release(self) -> None:
        if self._held.locked():
            self._held.release()

    def load(self, *, accept_edits: bool = False) -> Loaded:
        if self._checkpoint is None:
            self._records, self._first_seq = [], 0
            return Loaded()
        return Loaded(checkpoint=deepcopy(self._checkpoint))

    def scan(self, *, with_outputs: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
        for ref, line in enumerate(list(self._records)):
            yield ref, decode_record(line)

    def read(self, refs: Iterable[int]) -> Iterator[dict[str, Any]]:
        for ref in refs:
            yield decode_record(self._records[ref])

    def lines(self, refs: Iterable[int]) -> Iterator[bytes]:
        for ref in refs:
            yield self._records[ref]

    def commit(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> list[int]:
        return self.begin(checkpoint, entries, flush=flush)()

    def begin(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> Sync:
        stored = self._checkpoint.seq if self._checkpoint else self._first_seq
        if checkpoint.seq != stored + 1:
            raise CheckpointError(f"seq {checkpoint.seq} does not follow the stored {stored}")
        lines = [encode_record(checkpoint.seq, entry.fields, entry.output) for entry in entries]
        # A copy: the caller goes on with his, and what he does to it is not committed.
        kept = deepcopy(checkpoint)

        def sync() -> list[int]:
            if self._checkpoint is None and not self._first_seq:
                self._records = []
            first = len(self._records)
            self._records += lines
            self._checkpoint = kept
            return list(range(first, len(self._records)))

        return sync

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        kept = [self._records[ref] for ref in refs]
        self.commit(checkpoint)
        self._records = kept
        return list(range(len(kept)))

    def size(self, refs: Iterable[int] | None = None) -> int:
        return sum(len(self._records[ref]) + 1 for ref in (range(len(self._records)) if refs is None else refs))

    def finish(self, summary: Mapping[str, Any]) -> None:
        if all(one["run_id"] != summary["run_id"] for one in self._ended):
            self._ended.insert(0, dict(summary))
            self._filed[summary["run_id"]] = list(self._records)
            self._filed = {one["run_id"]: self._filed[one["run_id"]] for one in self._ended[:JOURNALS_KEPT]}
        # The records can be read until the next run begins, as those of a folder can.
        self._checkpoint, self._first_seq = None, 0

    def set_aside(self) -> str:
        self._checkpoint, self._records, self._first_seq = None, [], 0
        return ""

    def summaries(self) -> list[dict[str, Any]]:
        return list(self._ended)

    def prune(self, *, keep: Collection[str] = ()) -> None:
        pass

    def note(self, event: Mapping[str, Any]) -> None:
        self.notes.append(dict(event))

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        self.kept[name] = b"".join(chunks)

    def post(self, messages: Sequence[Mapping[str, Any]]) -> None:
        texts = [encode_message(message) for message in messages]
        for text in texts:
            self._posted += 1
            self._inbox[f"{self._posted:020d}"] = text

    def inbox(self) -> list[Posted]:
        return [Posted(name, decode_message(text)) for name, text in list(self._inbox.items())]

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._inbox.pop(name, None)

    def reopen(self, run_id: str) -> Checkpoint | None:
        lines = self._filed.get(run_id)
        if lines is None:
            return None
        self._records, self._first_seq = list(lines), highest_seq(lines)
        ended = next(one for one in self._ended if one["run_id"] == run_id)
        return checkpoint_from(ended, seq=self._first_seq)

    def clear(self) -> None:
        self._checkpoint, self._records, self._ended, self._first_seq = None, [], [], 0
        self._filed.clear()
        self._inbox.clear()
        self.kept.clear()

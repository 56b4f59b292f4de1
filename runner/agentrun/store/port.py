"""The store port: the durable home of one job's runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentrun.checkpoint.checkpoint import Checkpoint


@dataclass(slots=True)
class Entry:
    """A record to commit: its fields without seq, and the output as JSON text where it has one."""

    fields: Mapping[str, Any]
    output: bytes | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a launch finds: no run, an unfinished one, or a finished one whose state was not cleared yet."""

    checkpoint: Checkpoint | None = None
    finished: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the lock."""

    pid: int
    host: str
    since: str
    started: str = field(default="")
    """The process's start as the system tells it: a pid alone may have been given to another since."""
    mark: str = field(default="")
    """What the processes of its launch carry in their environment."""


@dataclass(frozen=True, slots=True)
class Posted:
    """What lies in the inbox under `name`: a message, or something that is none."""

    name: str
    message: dict[str, Any] | None
    problem: str = ""
    """Why it is not a message."""


Sync = Callable[[], list[int]]
"""The second half of a commit: to be called once, in any thread. When it returns, no crash can take the first back."""


class Store(Protocol):
    """The durable home of one job's runs, called from one thread at a time; but `note` at any time.

    When `commit` returns, no crash can take back what it was given. An error from it means *unknown*: the store
    refuses everything further, and the next launch recovers.

    A record's `ref` is its place among all records of the run; it stays valid until `compact`.
    """

    def lock(self, *, wait_seconds: float = 5.0) -> None:
        """Become the only runner, or raise BusyError that says who is."""
        ...

    def load(self, *, accept_edits: bool = False) -> Loaded: ...

    def scan(self, *, with_outputs: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
        """All records of the loaded run with their refs, oldest first. A damaged one raises CheckpointError.

        Without outputs they need not be parsed, and may be left out.
        """
        ...

    def read(self, refs: Iterable[int]) -> Iterator[dict[str, Any]]:
        """The records at `refs`, in that order."""
        ...

    def lines(self, refs: Iterable[int]) -> Iterator[bytes]:
        """The same as they are written (see record.py), their checksums checked."""
        ...

    def commit(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> list[int]:
        """Make `checkpoint` and the records durable, and return their refs.

        `checkpoint.seq` must be one more than the stored one's. With `flush`, all records go to the journal.
        """
        ...

    def begin(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> Sync:
        """The first half of a commit, which waits for nothing; the second is what it returns.

        In between everything reads as before, `checkpoint` is the caller's again, and no other commit may begin.
        """
        ...

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        """Keep only the records at `refs` (ascending), with a commit of its own; return their new refs."""
        ...

    def size(self, refs: Iterable[int] | None = None) -> int:
        """Bytes of the records at `refs`, or of all."""
        ...

    def set_aside(self) -> str:
        """Put a state that cannot be read out of the way, keeping it; return the name it has now."""
        ...

    def finish(self, summary: Mapping[str, Any]) -> None:
        """File the run's summary and journal, then clear its state."""
        ...

    def summaries(self) -> list[dict[str, Any]]:
        """Of the runs that ended, newest first."""
        ...

    def prune(self, *, keep: Collection[str] = ()) -> None:
        """Remove what no checkpoint names, but `keep`. Only after a commit or a finish of this launch."""
        ...

    def note(self, event: Mapping[str, Any]) -> None:
        """Add a line to the log of launches; not part of recovery, and never an error."""
        ...

    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        """Keep a named side file (job.json, a spool) durably, replacing an older one."""
        ...

    def post(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Put these into the inbox, durably and in this order, for the runner to take in (agentrun/message.py).

        Needs neither the lock nor a loaded run; the job must be known. An error breaks nothing, but some of them may
        be there: posting again does no harm. One that is not a message raises MessageError, before any is posted.
        """
        ...

    def inbox(self) -> list[Posted]:
        """What was posted and not dropped, oldest first. Cheap to ask again and again."""
        ...

    def drop(self, names: Iterable[str]) -> None:
        """Take these out of the inbox, after the commit that takes them in; one that is gone already is fine.

        A crash may bring them back: taking one in twice must do no harm. What is not a message is kept, out of sight.
        """
        ...

    def reopen(self, run_id: str) -> Checkpoint | None:
        """A new run that begins with the records of one that has ended; None if they are not kept any more.

        For a store without a run (`load` found none, or `finish` ended it). `scan` and `read` then give those records;
        the checkpoint is not committed: its seq is the highest among them, and `commit` takes the next. Until then
        nothing names the copy. Damaged records raise CheckpointError.
        """
        ...

    def release(self) -> None: ...

    def clear(self) -> None:
        """Remove everything of this job but the lock."""
        ...

    @property
    def lock_fd(self) -> int | None:
        """The lock's descriptor, for the guardian to hold too."""
        ...

    @property
    def mark(self) -> str:
        """What the processes of this launch are to carry in their environment; written down with the lock."""
        ...

    @property
    def left_mark(self) -> str:
        """That of the last holder, if it did not give the lock back: what it left may still be alive. Or empty."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where the run's files are, if it has any."""
        ...

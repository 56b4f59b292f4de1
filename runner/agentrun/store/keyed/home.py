"""The home port: what a place outside of the folder must be able to do to keep one job. The rest is in `KeyedStore`.

The *head* of a home is the only thing that is ever replaced. It holds the lease (epoch, holder) and the state. Records
are added to a *journal* under ascending refs, and are never changed; a journal counts from the moment a head, or the
summary of a run, names it. So every change that matters is one conditional write of the head: "if the epoch is still
mine, and the last commit is the one that I know".

Errors of a home, and nothing else leaves it:

    LostError        another runner has the job by now; the write did not happen, and no later one will
    StoreError       the place did not answer: a write may have happened or not
    BrokenStoreError     a write failed for good: nothing is asked about or tried again
    UsageError       the address, the credentials or the permissions are wrong
    CheckpointError  what is stored is damaged, gone, or of a newer version

A home may be used from several threads; it serialises their calls, and connects again by itself after an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

PIECE_BYTES = 8 * 1024 * 1024
"""The most bytes of one piece of a side file."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head at one moment."""

    epoch: int = 0
    """One more with each launch that takes the job. It never goes back, not even by `clear`."""
    holder: bytes | None = None
    """Who took the job and has not given it back, as JSON."""
    fresh: bool = False
    """Whether the lease of that holder has not run out, by the place's own clock."""
    seq: int = 0
    """Of the last commit; 0 without a run."""
    state: bytes | None = None
    """The text of the checkpoint; None without an unfinished run."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: it replaces the state, and adds records to the journal that the state names."""

    seq: int
    state: bytes
    run_id: str
    journal: str
    first_ref: int
    """The ref of the first of `lines`: as many records are in the journal already."""
    lines: Sequence[bytes] = ()
    """Of any bytes: a sealed one may hold newlines."""
    is_first: bool = False
    """Of its run: there must be no state, and the run must not have ended. Otherwise the state must be the one with the
    seq before. So a commit that was sent twice and comes late changes nothing."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended: its summary, and the journal with its records."""

    run_id: str
    journal: str
    summary: bytes


class Home(ABC):
    """One job in one place."""

    shown: str
    """The place and the job, for people; no secret is in it."""
    look_seconds: float = 1.0
    """How often a runner looks for messages."""

    @property
    def raw(self) -> Home:
        """The home itself, for what is counted, copied or put aside as it is stored: sealed, if it was sealed."""
        return self

    # ---- the lease

    @abstractmethod
    def head(self, *, exact: bool = False) -> Head:
        """The head as it is now; an empty one for a job that is not known.

        `exact`: whether the lease has run out is told by the place's own clock even if that takes the right to write.
        Looking never makes a job.
        """

    @abstractmethod
    def take(self, seen: Head, holder: bytes, ttl_seconds: float) -> int:
        """Take the lease and return the new epoch, `seen.epoch + 1`.

        Only if the head is as it was seen: the same epoch, and a lease that has run out, was given back, or belongs to
        the holder that was seen (who the caller knows is dead). Otherwise LostError: somebody was quicker.
        """

    @abstractmethod
    def beat(self, epoch: int, ttl_seconds: float) -> None:
        """Renew the lease. LostError if the epoch is another's."""

    @abstractmethod
    def give(self, epoch: int) -> None:
        """Give the lease back: there is no holder any more. LostError if the epoch is another's."""

    # ---- the run

    @abstractmethod
    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        """The commit, whole or not at all, durably; it renews the lease.

        LostError unless the epoch is ours and the stored seq is the one before; StoreError if nobody knows.
        """

    @abstractmethod
    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        """Add records to a journal that nothing names yet, durably. Adding the same ones again does no harm."""

    @abstractmethod
    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        """The records from `first_ref` up to, not including, `end_ref`, in order; what is not there is left out."""

    @abstractmethod
    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        """The records at these refs, in that order; None for one that is not there."""

    @abstractmethod
    def size(self, journal: str) -> int:
        """Bytes of the records in the journal as they are stored, with a newline each."""

    @abstractmethod
    def finish(self, epoch: int, run: EndedRun) -> None:
        """File the run, and clear the state if it is of that run, in one step. A run that is filed already stays as it
        was: called twice, even when the next run has begun, it does no harm. LostError if the epoch is another's.
        """

    @abstractmethod
    def ended(self) -> list[EndedRun]:
        """The runs that ended, in any order."""

    @abstractmethod
    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        """Replace the state and all runs that ended, in one step; the records must have been staged.

        For an import, and for new keys. None: there is no unfinished run. LostError if the epoch is another's.
        """

    @abstractmethod
    def journals(self) -> set[str]:
        """The journals of which there is anything."""

    @abstractmethod
    def forget(self, epoch: int, *, runs: Collection[str] = (), journals: Collection[str] = ()) -> None:
        """Remove these runs that ended, and the records of these journals. LostError if the epoch is another's."""

    @abstractmethod
    def clear(self, epoch: int) -> None:
        """Remove everything but the lease: state, records, runs that ended, side files. LostError as above."""

    # ---- beside the run: job.json, spools, messages

    @abstractmethod
    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        """Keep a side file, whole or not at all, durably, in place of an older one; pieces are at most PIECE_BYTES.

        With an epoch, LostError unless that is still ours. An error of the iterable is the caller's.
        """

    @abstractmethod
    def put_new(self, name: str, text: bytes) -> bool:
        """Keep a side file unless there is one of this name; whether it was kept. Of two who try, one succeeds."""

    @abstractmethod
    def get(self, name: str) -> Iterator[bytes] | None:
        """The side file in its pieces; None if there is none."""

    @abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """The side files whose names begin so, sorted."""

    @abstractmethod
    def drop(self, names: Sequence[str], *, epoch: int | None = None) -> None:
        """Remove side files; one that is gone already is fine. With an epoch, LostError unless that is still ours."""


class Place(ABC):
    """A database, a bucket or a file that keeps many jobs."""

    shown: str
    """For people; no secret is in it."""

    @abstractmethod
    def names(self) -> list[str]:
        """The jobs that are known there: those with a state, a run that ended, or a side file. Sorted."""

    @abstractmethod
    def home(self, job: str) -> Home:
        """The home of a job, known or not yet. Opening it asks nothing of the place."""

    @abstractmethod
    def find(self, run_id: str) -> str | None:
        """The job that has a run of this id, unfinished or ended."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds open. A later call connects again."""


def in_pieces(chunks: Iterable[bytes], size: int = PIECE_BYTES) -> Iterator[bytes]:
    """The chunks put together to pieces of this size; the last one may be smaller."""
    gathered = bytearray()
    for chunk in chunks:
        gathered += chunk
        while len(gathered) >= size:
            yield bytes(gathered[:size])
            del gathered[:size]
    if gathered:
        yield bytes(gathered)


def in_batches(lines: Iterable[bytes], *, most_bytes: int = 1 << 20, most: int = 1000) -> Iterator[list[bytes]]:
    """The lines in batches to stage at once, each of about so many bytes or so many lines at most."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line)
        if size >= most_bytes or len(some) >= most:
            yield some
            some, size = [], 0
    if some:
        yield some


class BatchSize:
    """How many records to ask for at once: few at first, then as many as make some megabytes."""

    _WANTED_BYTES, _MOST = 4 * 1024 * 1024, 2000

    def __init__(self) -> None:
        self.records = 16

    def got(self, lines: Sequence[bytes | None]) -> None:
        """What the last batch was."""
        mean = sum(len(line) for line in lines if line is not None) / max(len(lines), 1)
        fitting = int(self._WANTED_BYTES / max(mean, 1))
        self.records = max(1, min(fitting, self.records * 4, self._MOST))

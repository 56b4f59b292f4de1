"""The store port: the durable home of one job's runs.

Four nouns: the `Store` of the runner that works on a job, its `Lease`, the `Reader` for everyone who only looks, and
the `Catalogue` of the jobs in one place.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agentrun.checkpoint.checkpoint import Checkpoint, copy_checkpoint
from agentrun.checkpoint.message import AnyMessage
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, last_finished
from agentrun.errors import AgentrunError, CheckpointError, TrustError, UsageError
from agentrun.job.fields import KEPT_LABEL, Layer
from agentrun.job.kept import JOB_JSON
from agentrun.store.contents import Contents as Contents
from agentrun.store.glance import Glance
from agentrun.store.holder import Holder as Holder
from agentrun.store.salvage import Salvage

READ_AGAIN = 20
"""How often a reader looks again when a runner moved something between two of its looks."""


PRUNED_SIDES = (".spool", ".written")
"""Side files that are pruned once nothing names them: items from outside, and lists of written files."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a launch finds: no run, an unfinished one, or a finished one whose state was not cleared yet."""

    checkpoint: Checkpoint | None = None
    finished: Summary | None = None


@dataclass(frozen=True, slots=True)
class Posted:
    """What lies in the inbox under `name`: a message, or something that is none."""

    name: str
    message: AnyMessage | None
    problem: str = ""
    """Why it is not a message."""


class HistoryEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to the job: a launch, a restore, a checkpoint, a stop, or a dropped message."""

    at: str = ""
    event: str
    launch: int | None = None
    seq: int | None = None
    last_completed: int | None = None
    settled: int | None = None
    """How many items are settled."""
    run_id: str | None = None
    message: str | None = None
    """The name of a message in the inbox."""
    key: str | None = None
    reason: str | None = None
    until: str | None = None
    """When a pause ends, in ISO form."""


Sync = Callable[[], list[int]]
"""The second half of a commit: call it once, in any thread. When it returns, no crash can take the commit back."""


class Lease(ABC):
    """The right to be the only runner of a job, from `Store.lock` to `release`."""

    mark: str
    """What the processes of this launch carry in their environment; written down with the lock."""
    left_mark: str = ""
    """The mark of the previous holder if it did not release the lock: what it started may still be alive."""

    @property
    def fd(self) -> int | None:
        """The lock's descriptor, for the guardian to hold too; None if the lock has none."""
        return None

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may have the job by now. Locks on this machine are never lost."""
        return False

    @property
    def expires(self) -> bool:
        """Whether it is lost by not being renewed, so that a launch has to watch it."""
        return False

    @property
    def stops_asked(self) -> int:
        """How often somebody on another machine has asked this launch to stop; twice means at once."""
        return 0

    @abstractmethod
    def release(self) -> None:
        """Give the job back; a second call does nothing."""


class Reader(ABC):
    """One job at one moment, for everyone who only looks: it needs no lock, and a runner may be at work.

    It shows the unfinished run (`checkpoint`), or else one that ended (`summary`): the newest, unless another is asked
    for. Neither is there for a job that never ran. What a runner does meanwhile does not change the records that it
    gives. Close it, or use `with`.
    """

    name: str
    """The job's name."""
    checkpoint: Checkpoint | None
    summary: Summary | None
    summaries: Sequence[Summary]
    """The runs that ended, newest first."""

    @abstractmethod
    def records(self, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        """The run's records with their refs, oldest first: those whose ref is `since` or more."""

    @abstractmethod
    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        """The records at `refs`, in that order."""

    def scan(self) -> Iterator[tuple[int, Record]]:
        """All records, as a store gives them."""
        return self.records()

    def search(self, text: str, *, any_case: bool = False) -> Iterator[tuple[int, Record]]:
        """The records whose JSON contains `text`, oldest first; with `any_case`, ASCII letters in either case."""
        needle = needle_for(text)
        for ref, record in self.records():
            if contains(msgspec.json.encode(record), needle, any_case=any_case):
                yield ref, record

    @abstractmethod
    def holder(self) -> Holder | None:
        """Who is at work on the job right now."""

    @abstractmethod
    def inbox(self) -> list[Posted]:
        """What people posted and no runner has processed yet, oldest first. Cheap to ask again."""

    def history(self, *, recent: bool = False) -> Iterator[HistoryEvent]:
        """The events that `Store.note` kept, oldest first; `recent`: only some hundreds of the newest."""
        return iter(())

    @property
    def run_id(self) -> str:
        """The run that is shown; empty for a job that never ran."""
        if self.checkpoint is not None:
            return self.checkpoint.run_id
        return self.summary.run_id if self.summary is not None else ""

    def series_of(self, run_id: str) -> str | None:
        """The series that a run belongs to; None if the run is not known."""
        if self.checkpoint is not None and self.checkpoint.run_id == run_id:
            return self.checkpoint.series
        return next((one.series or one.run_id for one in self.summaries if one.run_id == run_id), None)

    def close(self) -> None:
        """Let go of what it holds open."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Store(ABC):
    """The durable home of one job's runs, called from one thread at a time, except for `note` and `reader`.

    When `commit` returns, no crash can take back what it was given. An error from it means *unknown*: the store
    refuses everything further, and the next launch recovers.

    A record's `ref` is an opaque number that only grows within a run; it stays valid until `compact`.
    """

    folder: Path | None = None
    """The job's folder on this machine, for a store that has one: for its state, or only for its logs and scratch."""
    look_seconds: float = 1.0
    """How often a runner looks into the inbox: less often where each look has its price."""
    where: str = ""
    """The place that the state is in, for people, if that is not the folder. Runners elsewhere may share it."""

    @property
    def is_sealed(self) -> bool:
        """Whether all that is read from this store is sealed."""
        return False

    def glance(self) -> Glance | None:
        """What can be seen of the job without its key; None for a store that seals nothing. CheckpointError if even
        that cannot be read."""
        return None

    @property
    def trouble(self) -> str:
        """Why a store that is waited for does not answer; empty if it does. May be asked from any thread."""
        return ""

    @abstractmethod
    def lock(self, *, wait_seconds: float = 5.0) -> Lease:
        """Become the only runner, or raise BusyError that says who is."""

    @abstractmethod
    def reader(self, *, accept_edits: bool = False, run_id: str = "") -> Reader:
        """A look at the job as it is now, or at the run `run_id`, which has ended.

        CheckpointError if its state cannot be read, or the records of that run are not kept.
        """

    def holder(self) -> Holder | None:
        """Who is at work on the job right now. A store that cannot tell while its state is damaged returns None."""
        try:
            with self.reader() as reader:
                return reader.holder()
        except CheckpointError:
            return None

    def ask_to_stop(self, holder: Holder) -> None:
        """Ask the runner at work to stop, as Ctrl-C would. UsageError if it cannot be asked from here."""
        raise UsageError(f"its runner is {holder.describe()}; stop it there")

    @abstractmethod
    def load(self, *, accept_edits: bool = False) -> Loaded:
        """Find the run to resume, changing nothing."""

    @abstractmethod
    def scan(self) -> Iterator[tuple[int, Record]]:
        """All records of the loaded run with their refs, oldest first. A damaged one raises CheckpointError."""

    @abstractmethod
    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        """The records at `refs`, in that order."""

    @abstractmethod
    def commit(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> list[int]:
        """Make `checkpoint` and the records durable, number the records by its seq, and return their refs.

        `checkpoint.seq` must be one more than the stored one's.
        """

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        """The first half of a commit, which waits for nothing; what it returns is the second.

        In between everything reads as before, `checkpoint` belongs to the caller again, and no other commit may begin.
        Stores that cannot divide a commit do all of it in the second half.
        """
        copied = copy_checkpoint(checkpoint)
        return lambda: self.commit(copied, records)

    @abstractmethod
    def finish(self, summary: Summary) -> None:
        """File the run's summary and records, then clear its state."""

    @abstractmethod
    def reopen(self, records: Iterable[Record], *, seq: int) -> Sequence[int]:
        """Begin a new run with records of a run that ended, and return their refs.

        For a store without a run (`load` found none, or `finish` ended it). `scan` and `read` then give these records,
        whose numbers stay as they are. Nothing names them until the first commit, whose seq follows `seq`, the highest
        of the numbers.
        """

    @abstractmethod
    def summaries(self) -> list[Summary]:
        """The runs that ended, newest first: see `Summary.age`."""

    @abstractmethod
    def clear(self) -> None:
        """Remove everything of this job but the lock."""

    @abstractmethod
    def post(self, messages: Sequence[AnyMessage]) -> None:
        """Put these into the inbox, durably and in this order, for the runner to process.

        Needs neither the lock nor a loaded run; the job must be known. An error breaks nothing, but some of them may
        be there: posting again does no harm. One that is too large raises MessageError, before any is posted.
        """

    @abstractmethod
    def inbox(self) -> list[Posted]:
        """What was posted and not dropped, oldest first. Cheap to ask again and again."""

    @abstractmethod
    def claim(self, names: Iterable[str]) -> set[str]:
        """Those of these messages that are still there; from now on none of them can be withdrawn.

        For the runner, right before the commit that processes them. A crash may undo it, or leave them claimed: they
        are in the inbox like any other until they are dropped.
        """

    @abstractmethod
    def withdraw(self, name: str) -> bool:
        """Take a message back, durably; False if it is gone, or claimed by a runner. Needs no lock."""

    @abstractmethod
    def drop(self, names: Iterable[str]) -> None:
        """Take these out of the inbox, after the commit that processed them; one that is gone already is fine.

        A crash may bring them back: processing one twice must do no harm. What is not a message is kept, out of sight.
        """

    @abstractmethod
    def keep(self, name: str, chunks: Iterable[bytes]) -> None:
        """Keep a named side file (job.json, a spool) durably, replacing an older one."""

    @abstractmethod
    def fetch(self, name: str) -> Iterator[bytes] | None:
        """The side file of that name, in pieces; None if there is none."""

    # ---- optional

    def compact(self, checkpoint: Checkpoint, refs: Sequence[int]) -> list[int]:
        """Keep only the records at `refs` (ascending), with a commit of its own; return their new refs.

        Stores whose records do not grow into garbage keep everything, with an ordinary commit.
        """
        self.commit(checkpoint)
        return list(refs)

    def size(self, refs: Iterable[int] | None = None) -> int:
        """Bytes of the records at `refs`, or of all; 0 if compaction would gain nothing."""
        return 0

    def prune(self, *, keep: Collection[str] = ()) -> None:
        """Remove what no checkpoint names, except the side files `keep`; of the runs that ended, all but the newest.

        The records of the last run that was completed, and the items it was given, always stay, and the lists of
        files that summaries name (`sides_named`). Only after a commit or a finish of this launch, or if there is no
        unfinished run.
        """

    def set_aside(self) -> str:
        """Put a state that cannot be read out of the way, keeping it; return where it is now."""
        raise CheckpointError("the state cannot be read, and this store cannot put it aside; clear the job")

    def salvage(self) -> Salvage:
        """The repair of a state that cannot be loaded."""
        raise UsageError(
            f"repair works on the folder store only; restore {self.where or 'the job'} from a backup, or start over "
            f"with --fresh"
        )

    def note(self, event: HistoryEvent) -> None:
        """Add an event to the job's history; not part of recovery, and never an error."""

    def contents(self) -> Contents:
        """Everything of the job, for a holder of the lock who has loaded it and changes nothing while reading.

        A run whose summary is filed and whose state was not cleared yet must be finished first.
        """
        raise UsageError("this job is in a store whose jobs cannot be moved")

    def adopt(self, contents: Contents, *, replace: bool = False) -> None:
        """Hold this job from now on: a crash leaves the whole job, or what was there before.

        For a holder of the lock who has loaded a store without runs; with `replace`, also over other runs. These may be
        what `contents` was read from. Messages and side files that were there stay, unless `contents` has others of
        the same names. Then `load` again.
        """
        raise UsageError("this store cannot take a job from another one")

    def forget(self, name: str) -> None:
        """Remove a side file, durably; one that is gone already is fine. Stores that cannot do that empty it."""
        if b"".join(self.fetch(name) or ()):
            self.keep(name, [])


class Catalogue(ABC):
    """The jobs of one place, such as a state folder."""

    @abstractmethod
    def names(self) -> list[str]:
        """The jobs that are known here, sorted."""

    @abstractmethod
    def store(self, name: str) -> Store:
        """The store of a job, known or not yet."""

    def has(self, name: str) -> bool:
        """Whether a job of exactly this name is known here."""
        return name in self.names()

    def job_json(self, name: str) -> bytes | None:
        """What was asked when the job was started last; None if that is not known."""
        pieces = self.store(name).fetch(JOB_JSON)
        return b"".join(pieces) if pieces is not None else None

    def kept_flags(self, name: str) -> Layer | None:
        """The flags kept with the job's unfinished run; None without any.

        What cannot be read is for the launch to report.
        """
        try:
            # Edits too: a launch that accepts them keeps these flags, and one that does not stops by itself.
            with self.store(name).reader(accept_edits=True) as reader:
                kept = reader.checkpoint.context.kept if reader.checkpoint is not None else {}
        except TrustError:
            raise
        except AgentrunError:
            return None
        return Layer(KEPT_LABEL, kept) if kept else None

    def is_elsewhere(self, name: str) -> bool:
        """Whether the job's state is, or will be, in a store that others may share."""
        return False

    def find(self, run_id: str) -> str | None:
        """The name of the job that has a run of this id. A job that cannot be read does not hide the others."""
        for name in self.names() if run_id else ():
            try:
                with self.store(name).reader(accept_edits=True) as reader:
                    runs = {reader.run_id, *(one.run_id for one in reader.summaries)}
            except AgentrunError:
                runs = self._run_ids(name)
            if run_id in runs:
                return name
        return None

    def _run_ids(self, name: str) -> set[str]:
        """Of a job whose checkpoint cannot be read; none if nothing else can."""
        try:
            seen = self.store(name).glance()
            ended = seen.ended if seen is not None else self.store(name).summaries()
            return {one.run_id for one in (*ended, seen.unfinished if seen is not None else None) if one is not None}
        except AgentrunError:
            return set()


def message_names(count: int) -> list[str]:
    """New names, in the order of time and of posting."""
    now = time.time_ns()
    return [f"{now + n:020d}-{secrets.token_hex(4)}.json" for n in range(count)]


def sides_named(ended: Sequence[Summary]) -> set[str]:
    """The side files that the runs that ended still need: `ended` is newest first."""
    last = last_finished(ended)
    spools = {last.spool} if last is not None and last.spool else set()
    return spools | {one.output.listed for one in ended if one.output is not None and one.output.listed}


def is_side(name: str) -> bool:
    """Whether it is the name of a side file that belongs to a job wherever it is: job.json, a spool, a list."""
    return name == JOB_JSON or (name.endswith(PRUNED_SIDES) and "/" not in name and name[0] not in ".-")


def needle_for(text: str) -> bytes:
    """The text as it stands inside a string of JSON."""
    return msgspec.json.encode(text)[1:-1]


def contains(text: bytes, needle: bytes, *, any_case: bool = False) -> bool:
    """Whether the needle is in the text; with `any_case`, ASCII letters match in either case."""
    return needle.lower() in text.lower() if any_case else needle in text

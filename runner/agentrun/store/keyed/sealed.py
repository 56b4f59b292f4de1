"""A home whose texts are sealed, and one that refuses what is sealed because nobody gave a key.

Sealed are the records, the state and the summaries but for their figures, and all side files: job.json, spools,
messages.
In clear are who holds the job, the names of jobs, runs, journals and side files, and how large everything is. What
sealing cannot show is in `checkpoint/sealing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from shlex import quote

from agentrun.checkpoint.sealed_file import START_BYTES, key_of_file, open_sealed, seal_file
from agentrun.checkpoint.sealed_state import key_of_state, open_state, open_summary, seal_state, seal_summary
from agentrun.checkpoint.sealing import (
    Keyring,
    MissingKeyError,
    NotSealedError,
    about,
    key_of_line,
    needs_key,
    not_sealed,
    without_key,
)
from agentrun.errors import AgentrunError
from agentrun.store.keyed.home import Commit, EndedRun, Head, Home, Place, in_pieces
from agentrun.store.keyed.wrapped import WrappedHead, WrappedHome


class SealedPlace(Place):
    """The homes of another place, sealed with these keys; without keys, homes that refuse what is sealed."""

    def __init__(self, place: Place, ring: Keyring | None) -> None:
        self.shown = place.shown
        self._place = place
        self._ring = ring

    def names(self) -> list[str]:
        return self._place.names()

    def home(self, job: str) -> Home:
        home = self._place.home(job)
        return SealedHome(home, self._ring, job) if self._ring is not None else UnsealedHome(home, job)

    def find(self, run_id: str) -> str | None:
        return self._place.find(run_id)

    def close(self) -> None:
        self._place.close()


class SealedHome(WrappedHome):
    """Everything that is written is sealed with the first key of the ring; what is read must be sealed with one of it.

    `accepts_clear`: what is not sealed is read as it is. Only for sealing and unsealing a whole job: otherwise whoever
    can write to the store could replace what was sealed.
    """

    def __init__(self, inner: Home, ring: Keyring, job: str, *, accepts_clear: bool = False) -> None:
        super().__init__(inner)
        self._ring = ring
        self._job = job
        self._accepts_clear = accepts_clear
        self._state_about = about("state", job)

    def head(self, *, exact: bool = False) -> Head:
        return WrappedHead(self.inner.head(exact=exact), self._open_state)

    def _open_state(self, state: bytes) -> bytes:
        if key_of_state(state) is None:
            return self._clear(state, "the state")
        with self._telling():
            return open_state(self._ring, state, self._state_about, where=f"{self.shown}: the state")

    def _clear(self, text: bytes, part: str) -> bytes:
        """What is not sealed, if that is accepted."""
        if self._accepts_clear:
            return text
        raise self._not_sealed(part)

    def _not_sealed(self, part: str) -> NotSealedError:
        return not_sealed(self.shown, job=self._job, part=part if is_any_sealed(self.inner) else "")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except MissingKeyError as error:
            raise without_key(error, self._job) from None

    # ---- the run

    def commit(self, epoch: int, commit: Commit, ttl_seconds: float) -> None:
        self.inner.commit(epoch, self._seal_commit(commit), ttl_seconds)

    def _seal_commit(self, commit: Commit) -> Commit:
        return Commit(
            seq=commit.seq,
            state=seal_state(self._ring, commit.state, self._state_about),
            run_id=commit.run_id,
            journal=commit.journal,
            first_ref=commit.first_ref,
            lines=self._seal_lines(commit.journal, commit.first_ref, commit.lines),
            is_first=commit.is_first,
        )

    def _seal_lines(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> list[bytes]:
        journal_about = self._journal_about(journal)
        return [self._ring.seal_line(line, journal_about + b"%d" % ref) for ref, line in enumerate(lines, first_ref)]

    def _journal_about(self, journal: str) -> bytes:
        return about("record", self._job, journal)

    def stage(self, journal: str, first_ref: int, lines: Sequence[bytes]) -> None:
        self.inner.stage(journal, first_ref, self._seal_lines(journal, first_ref, lines))

    def scan(self, journal: str, first_ref: int, end_ref: int) -> Iterator[tuple[int, bytes]]:
        journal_about = self._journal_about(journal)
        for ref, line in self.inner.scan(journal, first_ref, end_ref):
            yield ref, self._open_line(line, journal_about, ref)

    def read(self, journal: str, refs: Sequence[int]) -> list[bytes | None]:
        journal_about, found = self._journal_about(journal), self.inner.read(journal, refs)
        return [
            self._open_line(line, journal_about, ref) if line is not None else None
            for ref, line in zip(refs, found, strict=True)
        ]

    def _open_line(self, line: bytes, journal_about: bytes, ref: int) -> bytes:
        if key_of_line(line) is None:
            return self._clear(line, f"record {ref}")
        with self._telling():
            return self._ring.open_line(line, journal_about + b"%d" % ref, where=f"{self.shown}: record {ref}")

    def finish(self, epoch: int, run: EndedRun) -> None:
        self.inner.finish(epoch, self._seal_run(run))

    def ended(self) -> list[EndedRun]:
        return [EndedRun(run.run_id, run.journal, self._open_summary(run)) for run in self.inner.ended()]

    def replace(self, epoch: int, commit: Commit | None, ended: Sequence[EndedRun]) -> None:
        sealed = self._seal_commit(commit) if commit is not None else None
        self.inner.replace(epoch, sealed, [self._seal_run(run) for run in ended])

    def _seal_run(self, run: EndedRun) -> EndedRun:
        return EndedRun(run.run_id, run.journal, seal_summary(self._ring, run.summary, self._run_about(run)))

    def _open_summary(self, run: EndedRun) -> bytes:
        part = f"the summary of run {run.run_id}"
        if key_of_state(run.summary) is None:
            return self._clear(run.summary, part)
        with self._telling():
            return open_summary(self._ring, run.summary, self._run_about(run), where=f"{self.shown}: {part}")

    def _run_about(self, run: EndedRun) -> bytes:
        return about("run", self._job, run.run_id, run.journal)

    # ---- beside the run

    def put(self, name: str, pieces: Iterable[bytes], *, epoch: int | None = None) -> None:
        self.inner.put(name, in_pieces(seal_file(self._ring, pieces, self._file_about(name))), epoch=epoch)

    def put_new(self, name: str, text: bytes) -> bool:
        return self.inner.put_new(name, b"".join(seal_file(self._ring, [text], self._file_about(name))))

    def get(self, name: str) -> Iterator[bytes] | None:
        pieces = self.inner.get(name)
        if pieces is None:
            return None
        start, pieces = peek(pieces)
        if key_of_file(start) is not None:
            return self._open_file(name, pieces)
        if self._accepts_clear:
            return pieces
        raise self._not_sealed(name)

    def _open_file(self, name: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        # A start over needs job.json, too: it is no way out.
        way_out = f"restore the store from a backup, or remove the job with: agentrun clear {quote(self._job)}"
        where = f"{self.shown}: {name}"
        with self._telling():
            yield from open_sealed(self._ring, pieces, self._file_about(name), where=where, what_to_do=way_out)

    def _file_about(self, name: str) -> bytes:
        return about("file", self._job, name)


class UnsealedHome(WrappedHome):
    """For those without a key: what is not sealed is read as it is, and what is sealed raises UsageError.

    The lease can be looked at and taken, and a runner asked to stop, without a key.
    """

    def __init__(self, inner: Home, job: str) -> None:
        super().__init__(inner)
        self._job = job

    def head(self, *, exact: bool = False) -> Head:
        return WrappedHead(self.inner.head(exact=exact), self._check_state)

    def _check_state(self, state: bytes) -> bytes:
        self._refuse(key_of_state(state))
        return state

    def ended(self) -> list[EndedRun]:
        found = self.inner.ended()
        for run in found:
            self._refuse(key_of_state(run.summary))
        return found

    def get(self, name: str) -> Iterator[bytes] | None:
        pieces = self.inner.get(name)
        if pieces is None:
            return None
        start, pieces = peek(pieces)
        self._refuse(key_of_file(start))
        return pieces

    def _refuse(self, key: str | None) -> None:
        if key is not None:
            raise without_key(needs_key(self.shown, key), self._job)


def is_any_sealed(home: Home) -> bool:
    """Whether a run of the job is sealed, as far as that can be seen now."""
    raw = home.raw
    try:
        state = raw.head().state
        return any(key_of_state(text) is not None for text in (state or b"", *(one.summary for one in raw.ended())))
    except AgentrunError:
        return False


def peek(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Enough of the first bytes to tell whether a file is sealed, and all of its pieces."""
    first: list[bytes] = []
    while sum(map(len, first)) < START_BYTES and (piece := next(pieces, None)) is not None:
        first.append(piece)
    return b"".join(first), chain(first, pieces)

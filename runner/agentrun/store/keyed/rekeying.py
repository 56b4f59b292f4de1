"""New keys for a job in a shared place; sealing one that was not sealed, and unsealing one that was.

For a holder of the lease. The order, so that a crash at any point leaves a job that all keys together can read:

1. The records of each run are staged again in new journals, which nothing names yet. A crash leaves garbage.
2. One `replace` names these, with the state and the summaries. From here on the run is under the new key.
3. The side files, one after the other: each is under the old key or the new one, whole.
4. The old journals are removed. A crash before leaves garbage, which the next launch removes, too.

After a crash the same command starts over. While a job is being sealed or unsealed some of it is in clear: launches
refuse it until the command has come to its end. What the place itself keeps of texts that were replaced (free pages of
a database, versions in a bucket, backups) is out of reach.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Literal

import msgspec

from agentrun.checkpoint.checkpoint import Journal, decode_checkpoint, encode_checkpoint
from agentrun.checkpoint.sealing import Keyring
from agentrun.checkpoint.summary import decode_summary
from agentrun.errors import CheckpointError
from agentrun.store.keyed.home import PIECE_BYTES, Commit, EndedRun, Home, in_batches
from agentrun.store.keyed.inbox import FATE, INBOX, STOP, KeyedInbox
from agentrun.store.keyed.reader import WHAT_TO_DO
from agentrun.store.keyed.records import KeyedRecords
from agentrun.store.keyed.sealed import SealedHome

Change = Literal["rekey", "seal", "unseal"]


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """What was written again."""

    runs: int
    records: int
    files: int
    left: tuple[str, ...] = ()
    """The side files that are not as they were sealed: they are as they were."""


def rekey(home: Home, job: str, epoch: int, *, ring: Keyring, folder: Path, change: Change = "rekey") -> Rekeyed:
    """Read everything of the job with the key that opens it, and write it with the first key; to unseal, in clear.

    A run that cannot be read raises before anything has changed. `folder` is the job's folder on this machine, where a
    large side file is kept in between.
    """
    raw = home.raw
    source = SealedHome(raw, ring, job, accepts_clear=change != "rekey")
    target = SealedHome(raw, ring, job) if change != "unseal" else raw
    runs, files = _Runs(source, target, epoch), _Files(source, target, epoch, folder)
    commit, ended = runs.state(), runs.ended()
    target.replace(epoch, commit, ended)
    files.write()
    runs.forget_old()
    return Rekeyed(len(ended) + (commit is not None), runs.records, files.written, tuple(files.left))


class _Runs:
    """The runs of the job, with their records staged in new journals."""

    def __init__(self, source: Home, target: Home, epoch: int) -> None:
        self._source = source
        self._target = target
        self._epoch = epoch
        self._named: set[str] = set()
        """The journals that are needed from now on."""
        self.records = 0

    def state(self) -> Commit | None:
        """The unfinished run."""
        state = self._source.head().state
        if state is None:
            return None
        checkpoint = decode_checkpoint(state, where=self._source.shown, what_to_do=WHAT_TO_DO)
        length = checkpoint.journal.length
        checkpoint.journal = Journal(self._stage(checkpoint.journal.name, length), length)
        return Commit(
            seq=checkpoint.seq,
            state=encode_checkpoint(checkpoint),
            run_id=checkpoint.run_id,
            journal=checkpoint.journal.name,
            first_ref=length,
        )

    def ended(self) -> list[EndedRun]:
        return [self._ended(run) for run in self._source.ended()]

    def _ended(self, run: EndedRun) -> EndedRun:
        summary = decode_summary(run.summary)
        length = summary.journal_length if summary is not None else 0
        if not length or not KeyedRecords(self._source, run.journal, length).is_there():
            return run  # its records are no longer kept
        journal = self._stage(run.journal, length)
        # By its JSON: perhaps a newer version has written more than this one knows.
        values = msgspec.json.decode(run.summary, type=dict)
        text = msgspec.json.format(msgspec.json.encode({**values, "journal": journal}), indent=2)
        return EndedRun(run.run_id, journal, text)

    def _stage(self, journal: str, length: int) -> str:
        """Copy a journal; the name of the copy."""
        name = f"{self._epoch:08d}-{secrets.token_hex(4)}"
        staged = 0
        lines = (line for _, line in KeyedRecords(self._source, journal, length).lines(range(length)))
        for some in in_batches(lines):
            self._target.stage(name, staged, some)
            staged += len(some)
        self._named.add(name)
        self.records += staged
        return name

    def forget_old(self) -> None:
        old = self._target.journals() - self._named
        if old:
            self._target.forget(self._epoch, journals=old)


class _Files:
    """The side files, each read whole before it is replaced."""

    def __init__(self, source: Home, target: Home, epoch: int, folder: Path) -> None:
        self._source = source
        self._target = target
        self._epoch = epoch
        self._folder = folder
        self._inbox = KeyedInbox(source)
        self.written = 0
        self.left: list[str] = []

    def write(self) -> None:
        names = self._source.names()
        # Fates first: a message is claimed by its fate.
        for name in sorted(names, key=lambda name: not name.startswith(FATE)):
            try:
                self.written += self._write(name, names)
            except CheckpointError:
                self.left.append(name)

    def _write(self, name: str, names: list[str]) -> bool:
        """Whether it was written; it may be gone by now."""
        pieces = self._source.get(name)
        if pieces is None:
            return False
        # Not from one into the other: the place may have removed the old text before it asks for the first piece.
        with SpooledTemporaryFile(max_size=PIECE_BYTES, dir=str(self._folder)) as copy:
            for piece in pieces:
                copy.write(piece)
            copy.seek(0)
            whole = iter(lambda: copy.read(PIECE_BYTES), b"")
            if name.startswith(INBOX) and not name.startswith(INBOX + STOP):
                return self._write_message(name, whole, names)
            self._target.put(name, whole, epoch=self._epoch)
        return True

    def _write_message(self, name: str, pieces: Iterator[bytes], names: list[str]) -> bool:
        """Claimed meanwhile: a person who needs no lease could withdraw it, and it would be back."""
        fate = FATE + (message := name.removeprefix(INBOX))
        if not self._inbox.claim([message]):
            return False
        self._target.put(name, pieces, epoch=self._epoch)
        if fate not in names:
            self._target.drop([fate], epoch=self._epoch)
        return True

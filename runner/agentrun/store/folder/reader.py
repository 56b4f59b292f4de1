"""Reading a job's folder without its lock, while a runner may be at work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.errors import CheckpointError
from agentrun.store.folder.inbox import Inbox
from agentrun.store.folder.journal import JournalLines, Records, ways_out
from agentrun.store.folder.rollback import check_missing
from agentrun.store.folder.runs import Runs
from agentrun.store.folder.state import NAME as STATE
from agentrun.store.folder.state import StateFile, read_checkpoint
from agentrun.store.local.history import read_history, recent_history
from agentrun.store.local.lock import live_holder
from agentrun.store.port import READ_AGAIN, HistoryEvent, Holder, Posted, Reader, needle_for
from agentrun.system.disk import Disk


class FolderReader(Reader):
    """It holds the journal open, so that compaction or the end of the run does not change what it shows."""

    def __init__(self, folder: Path, *, accept_edits: bool = False, run_id: str = "") -> None:
        self.name = folder.name
        self._folder = folder
        self._accept_edits = accept_edits
        self._runs = Runs(folder, Disk())
        self._inbox = Inbox(folder, Disk())
        self._lines: JournalLines
        self._records: Records
        if run_id:
            self._look_at(run_id)
            return
        for _ in range(READ_AGAIN):
            # A runner may compact the journal, or begin or finish a run, between two looks.
            if self._look():
                return
        if self.checkpoint is None:
            check_missing(folder / STATE, self._runs)
        raise CheckpointError(f"{folder}: the journal that {STATE} names is missing; {ways_out(folder, 'restore it')}")

    def _look(self) -> bool:
        """False if what was found does not fit together."""
        checkpoint, self.summaries = self._checkpoint(), self._runs.summaries()
        if checkpoint is not None and all(one.run_id != checkpoint.run_id for one in self.summaries):
            self.checkpoint, self.summary = checkpoint, None
            return self._open(self._folder / checkpoint.journal.name, checkpoint.journal.length, checkpoint)
        newest = self.summaries[0] if self.summaries else None
        self.checkpoint, self.summary = None, newest
        if checkpoint is None and not self._is_alone():
            return False
        if newest is None:
            return self._open(self._folder / "no-journal", 0)
        if self._open(self._runs.journal(newest.run_id), newest.journal_length):
            return True
        if checkpoint is not None:
            # The summary is filed, and the journal about to be.
            return self._open(self._folder / checkpoint.journal.name, newest.journal_length)
        # The records of older runs are not kept.
        return self._open(self._folder / "no-journal", 0)

    def _look_at(self, run_id: str) -> None:
        self.checkpoint, self.summaries = None, self._runs.summaries()
        self.summary = next((one for one in self.summaries if one.run_id == run_id), None)
        if self.summary is None:
            raise CheckpointError(f"{self._folder}: no run {run_id} has ended here; see: agentrun status {self.name}")
        path, length = self._runs.journal(run_id), self.summary.journal_length
        state = self._checkpoint() if not self._open(path, length) else None
        if state is not None and state.run_id == run_id:
            # The summary is filed, and the journal about to be.
            path = self._folder / state.journal.name
        if not self._open(path, length):
            raise CheckpointError(f"{path}: is missing, with the records of that run; restore it, or use --fresh")

    def _is_alone(self) -> bool:
        """False if there is a journal that belongs to a state.json, and nobody who may be about to write that."""
        try:
            check_missing(self._folder / STATE, self._runs)
        except CheckpointError:
            return self.holder() is not None
        return True

    def _checkpoint(self) -> Checkpoint | None:
        state = StateFile(self._folder, Disk())
        try:
            text = state.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{state.path}: cannot be read: {error.strerror}") from None
        return read_checkpoint(text, state.path, accept_edits=self._accept_edits)

    def _open(self, path: Path, length: int, checkpoint: Checkpoint | None = None) -> bool:
        outputs = [bytes(line) for line in checkpoint.outputs] if checkpoint is not None else []
        self._lines = JournalLines(path)
        self._records = Records(self._lines, length, outputs)
        return self._lines.open() or not length

    def records(self, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        return self._records.scan(since=since)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return self._records.read(refs)

    def search(self, text: str, *, any_case: bool = False) -> Iterator[tuple[int, Record]]:
        return self._records.containing(needle_for(text), any_case=any_case)

    def holder(self) -> Holder | None:
        return live_holder(self._folder)

    def inbox(self) -> list[Posted]:
        return self._inbox.messages()

    def history(self, *, recent: bool = False) -> Iterator[HistoryEvent]:
        return recent_history(self._folder) if recent else read_history(self._folder)

    def close(self) -> None:
        self._lines.close()

"""Reading a job in a shared place without its lease, while a runner may be at work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agentrun.checkpoint.checkpoint import decode_checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, decode_summary
from agentrun.errors import CheckpointError
from agentrun.store.keyed.home import EndedRun, Home
from agentrun.store.keyed.inbox import KeyedInbox
from agentrun.store.keyed.lease import holder_of
from agentrun.store.keyed.patience import Patience
from agentrun.store.keyed.records import KeyedRecords
from agentrun.store.local.history import read_history, recent_history
from agentrun.store.port import HistoryEvent, Holder, Posted, Reader

WHAT_TO_DO = "restore the store from a backup, or start over with --fresh (the old state is kept)"


class KeyedReader(Reader):
    """The head, read once, names the journal; records in it do not change.

    A journal that no run needs any more is removed by the next launch: who reads for that long is told to look again.
    """

    def __init__(
        self,
        name: str,
        home: Home,
        inbox: KeyedInbox,
        folder: Path,
        *,
        accept_edits: bool = False,
        run_id: str = "",
        patience_seconds: float = 0.0,
    ) -> None:
        self.name = name
        self._inbox = inbox
        self._folder = folder
        # In this order: a run that ends in between is then found among those that ended.
        patience = Patience(patience_seconds)
        head = patience.insist(home.head)
        self.summaries = patience.insist(lambda: read_summaries(home))
        self._holder = holder_of(head, folder)
        self.checkpoint = self.summary = None
        if head.state is not None and not run_id:
            found = decode_checkpoint(head.state, where=home.shown, accept_edits=accept_edits, what_to_do=WHAT_TO_DO)
            if all(one.run_id != found.run_id for one in self.summaries):
                self.checkpoint = found
        if self.checkpoint is not None:
            journal, length = self.checkpoint.journal.name, self.checkpoint.journal.length
        else:
            self.summary = next((one for one in self.summaries if run_id in ("", one.run_id)), None)
            if run_id and self.summary is None:
                raise CheckpointError(f"{home.shown}: no run {run_id} has ended here; see: agentrun status {name}")
            journal = self.summary.journal if self.summary is not None else ""
            length = self.summary.journal_length if self.summary is not None else 0
        self._records = KeyedRecords(home, journal, length, patience_seconds=patience_seconds)
        if self.checkpoint is None and not self._records.is_there():
            if run_id:
                raise CheckpointError(f"{home.shown}: the records of the run {run_id} are no longer kept; use --fresh")
            self._records = KeyedRecords(home, "", 0)

    def records(self, *, since: int = 0) -> Iterator[tuple[int, Record]]:
        return self._records.scan(since)

    def read(self, refs: Iterable[int]) -> Iterator[Record]:
        return self._records.read(refs)

    def holder(self) -> Holder | None:
        return self._holder

    def inbox(self) -> list[Posted]:
        return self._inbox.messages()

    def history(self, *, recent: bool = False) -> Iterator[HistoryEvent]:
        return recent_history(self._folder) if recent else read_history(self._folder)


def read_summaries(home: Home) -> list[Summary]:
    """The runs that ended, newest first.

    CheckpointError if one cannot be read: passed over, its finished items would be run again, and its records removed.
    """
    return sorted((_summary_of(home, one) for one in home.ended()), key=lambda summary: summary.age, reverse=True)


def _summary_of(home: Home, run: EndedRun) -> Summary:
    if (found := decode_summary(run.summary)) is None:
        raise CheckpointError(
            f"{home.shown}: the summary of the run {run.run_id} is damaged, or from a newer agentrun; {WHAT_TO_DO}"
        )
    return found

"""Notices a state.json that was put back or removed, by the journals beside it."""

from __future__ import annotations

from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import check_record, decode_record
from agentrun.errors import CheckpointError
from agentrun.store.folder.journal import JournalLines, journal_number, ways_out
from agentrun.store.folder.runs import Runs
from agentrun.store.folder.wreckage import filed_records, is_of_open_run
from agentrun.system.disk import names_in


def journals_in(folder: Path) -> list[str]:
    return [name for name in names_in(folder) if journal_number(name) is not None]


def check_alone(path: Path, checkpoint: Checkpoint) -> None:
    """The state of a finished run beside the journal of another: an old state.json was put over a newer run's."""
    others = [name for name in journals_in(path.parent) if name != checkpoint.journal.name]
    if others:
        raise CheckpointError(
            f"{path}: belongs to a run that has finished, but {others[0]} belongs to another; "
            f"{ways_out(path.parent, 'put the newest state.json back')}"
        )


def check_tail(path: Path, checkpoint: Checkpoint) -> None:
    """A valid record past the journal's length and beyond the next seq: an older state.json was put back."""
    name, length = checkpoint.journal.name, checkpoint.journal.length
    with JournalLines(path.parent / name) as lines:
        for _, line in lines.after(length):
            if check_record(line) and (seq := decode_record(line).seq) > checkpoint.seq + 1:
                raise CheckpointError(
                    f"{path}: is older than {name} (its seq is {checkpoint.seq}, but the journal continues to {seq}); "
                    f"{ways_out(path.parent, 'put the newest state.json back')}"
                )


def check_missing(path: Path, runs: Runs) -> None:
    """No state.json beside a journal with records of a run that has not ended: somebody removed it."""
    names = sorted(journals_in(path.parent))
    ended, filed = filed_records(runs) if names else (set(), set())
    for name in names:
        if is_of_open_run(path.parent / name, ended, filed):
            raise CheckpointError(
                f"{path}: is missing, but {name} holds records of a run that has not ended; "
                f"{ways_out(path.parent, 'put it back')}"
            )

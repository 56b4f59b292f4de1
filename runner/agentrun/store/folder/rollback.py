"""Notices an older state.json that was put back, by the journals beside it."""

from __future__ import annotations

from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import check_record, decode_record
from agentrun.errors import CheckpointError
from agentrun.store.folder.journal import JournalLines, journal_number
from agentrun.store.folder.runs import names_in


def journals_in(folder: Path) -> list[str]:
    return [name for name in names_in(folder) if journal_number(name) is not None]


def check_alone(path: Path, checkpoint: Checkpoint) -> None:
    """The state of a finished run beside the journal of another: an old state.json was put over a newer run's."""
    others = [name for name in journals_in(path.parent) if name != checkpoint.journal.name]
    if others:
        raise CheckpointError(
            f"{path}: belongs to a run that has finished, but {others[0]} belongs to another; "
            f"put the newest state.json back, or start over with --fresh (the old files are kept)"
        )


def check_tail(path: Path, checkpoint: Checkpoint) -> None:
    """A valid record past the journal's length and beyond the next seq: an older state.json was put back."""
    name, length = checkpoint.journal.name, checkpoint.journal.length
    with JournalLines(path.parent / name) as lines:
        for _, line in lines.after(length):
            if check_record(line) and (seq := decode_record(line).seq) > checkpoint.seq + 1:
                raise CheckpointError(
                    f"{path}: is older than {name} (its seq is {checkpoint.seq}, but the journal continues to {seq}); "
                    f"put the newest state.json back, or start over with --fresh"
                )

"""What `--fresh` gives up: people's work, results that no finished run has, and the mark of a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from agentrun.checkpoint.summary import last_finished
from agentrun.errors import CheckpointError
from agentrun.runs.intake import is_for
from agentrun.store.moving import moved_note
from agentrun.store.port import Reader, Store


@dataclass(frozen=True, slots=True)
class GivenUp:
    """False if nothing would be lost: the results of a finished run can be made again, and its records are kept."""

    run_id: str = ""
    """The unfinished run; empty if there is none."""
    finished: int = 0
    """How many items that run has finished."""
    waiting: int = 0
    """How many of its items wait for a person."""
    edited: int = 0
    """How many results a person has edited."""
    posted: Mapping[str, int] = field(default_factory=dict)
    """How many messages of each kind no launch has processed yet."""
    moved: str = ""
    """Where the job was moved to, in words: a start over would run it in two places. Empty if it was not moved."""

    def __bool__(self) -> bool:
        return bool(self.finished or self.waiting or self.edited or self.posted or self.moved)

    @property
    def needs_agreement(self) -> bool:
        """Whether somebody must agree, also where nobody can be asked."""
        return self.is_of_people or bool(self.moved)

    @property
    def is_of_people(self) -> bool:
        """Whether people's work is in it, which no launch can make again."""
        return bool(self.edited or self.posted)

    @property
    def work_of_people(self) -> str:
        """What of it people made, as a list in words; empty if nothing."""
        outputs = f"{self.edited:,} {'output' if self.edited == 1 else 'outputs'} edited by hand"
        posted = [f"{count:,} posted {kind}{'' if count == 1 else 's'}" for kind, count in self.posted.items()]
        return ", ".join([outputs, *posted] if self.edited else posted)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def given_up(store: Store) -> GivenUp:
    """Looks without the lock. A state that cannot be read is put aside by the launch, and so not given up."""
    return replace(_in_runs(store), moved=moved_note(store))


def _in_runs(store: Store) -> GivenUp:
    try:
        with store.reader() as reader:
            checkpoint, finished = reader.checkpoint, last_finished(reader.summaries)
            if checkpoint is not None:
                counts = checkpoint.counts
                return GivenUp(
                    checkpoint.run_id,
                    finished=counts.get("done", 0) + counts.get("skipped", 0),
                    waiting=counts.get("waiting", 0),
                    edited=_edited(reader),
                    posted=_posted(reader, checkpoint.run_id),
                )
        if finished is None:
            return GivenUp()
        with store.reader(run_id=finished.run_id) as reader:
            return GivenUp(edited=_edited(reader), posted=_posted(reader, finished.run_id))
    except CheckpointError:
        return GivenUp()


def _edited(reader: Reader) -> int:
    # Most runs have none, and that is found out without decoding their records.
    if not any(record.edited is not None for _, record in reader.search("edited")):
        return 0
    newest = {record.key: record.edited is not None for _, record in reader.records() if record.kind != "step"}
    return sum(newest.values())


def _posted(reader: Reader, run_id: str) -> dict[str, int]:
    series = reader.series_of(run_id) or run_id
    messages = [one.message for one in reader.inbox() if one.message is not None]
    return dict(Counter(one.kind for one in messages if is_for(one, run_id, series)))

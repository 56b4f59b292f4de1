"""The figures of a run: the part of its checkpoint, or of its summary, that can be read without a key."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from agentrun.checkpoint.checkpoint import Range
from agentrun.checkpoint.record import Count, in_words
from agentrun.checkpoint.summary import Status
from agentrun.errors import CheckpointError
from agentrun.money.budget import Totals


class Figures(Struct, kw_only=True):
    """Of a sealed run nobody without the key can tell whether they were changed."""

    job: str = ""
    run_id: str
    number: int = 0
    """Which run of the job it is; 0 for an unfinished one, whose number is sealed."""
    status: Status | None = None
    """How it ended; None for an unfinished run."""
    seq: Count = 0
    last_completed: int = -1
    total: Count = 0
    counts: dict[str, int] = {}
    failed: list[Range] = []
    waiting: list[Range] = []
    usage: Totals = msgspec.field(default_factory=Totals)
    started_at: str = ""
    updated_at: str = ""
    ended_at: str = ""

    @property
    def age(self) -> tuple[int, str]:
        """What runs are ordered by, as `Summary.age`."""
        return self.number, self.run_id


_decode = msgspec.json.Decoder(Figures).decode


def read_figures(text: bytes, *, where: str) -> Figures:
    """From the text of a checkpoint or a summary, sealed or not. CheckpointError if it is neither."""
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"{where}: {in_words(error)}; restore the store from a backup") from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{where}: cannot be read; restore the store from a backup") from None

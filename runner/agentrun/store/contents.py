"""What a store holds of one job: read from one store, and put into another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, Journal, copy_checkpoint
from agentrun.checkpoint.summary import Summary

Pieces = Callable[[], Iterable[bytes]]
"""Each call is another pass: there may be gigabytes, which are not held in memory."""
_LETTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.json")


@dataclass(frozen=True, slots=True)
class FiledRun:
    """A run that ended, without the fields of its summary that belong to the store."""

    summary: Summary
    lines: Pieces | None
    """Its encoded records, oldest first; None if they are no longer kept."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message in the inbox. Its name says when it was posted."""

    name: str
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything of one job but its lock and its history."""

    checkpoint: Checkpoint | None = None
    """Of the unfinished run, without the fields that belong to the store: all its records are in `lines`."""
    lines: Pieces = tuple
    """The encoded records of the unfinished run, oldest first. A damaged one raises CheckpointError."""
    ended: Sequence[FiledRun] = ()
    """The runs that ended, newest first."""
    sides: Mapping[str, Pieces] = field(default_factory=dict)
    """The side files by their names."""
    letters: Sequence[Letter] = ()
    """What people posted and no runner has processed, oldest first."""


def bare_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """A copy without the fields that belong to the store."""
    copied = copy_checkpoint(checkpoint)
    copied.outputs, copied.journal = [], Journal("", 0)
    return copied


def bare_summary(summary: Summary) -> Summary:
    """A copy without the fields that belong to the store."""
    return structs.replace(summary, journal="", journal_length=0)


def file_names(letters: Iterable[Letter]) -> Iterator[tuple[str, bytes]]:
    """The letters under names that any store can use, in their order; a name of that kind is kept."""
    for number, letter in enumerate(letters, 1):
        name = letter.name if letter.name.endswith(".json") else f"{letter.name}.json"
        yield name if _LETTER.fullmatch(name) else f"{number:020d}.json", letter.text

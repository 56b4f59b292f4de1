"""A whole job out of a home, and into one.

Records go into journals that nothing names yet, then one write of the head names them all: a crash leaves the job as it
was, and journals that are pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, Journal, encode_checkpoint
from agentrun.checkpoint.message import encode_message
from agentrun.checkpoint.summary import Summary, encode_summary
from agentrun.errors import CheckpointError, UsageError
from agentrun.store.contents import Contents, FiledRun, Letter, Pieces, bare_checkpoint, bare_summary, file_names
from agentrun.store.keyed.home import PIECE_BYTES, Commit, EndedRun, Home, in_pieces
from agentrun.store.keyed.inbox import INBOX
from agentrun.store.keyed.records import KeyedRecords
from agentrun.store.port import Posted

Stage = Callable[[Iterable[bytes]], Journal]
"""Puts lines into a new journal that nothing names yet."""


def read_contents(
    home: Home,
    checkpoint: Checkpoint | None,
    ended: Sequence[Summary],
    posted: Iterable[Posted],
    *,
    side: str,
) -> Contents:
    """What the home holds; `side` is what the names of side files begin with."""
    letters = [Letter(one.name, encode_message(one.message)) for one in posted if one.message is not None]
    return Contents(
        checkpoint=bare_checkpoint(checkpoint) if checkpoint is not None else None,
        lines=partial(_lines, home, checkpoint.journal) if checkpoint is not None else tuple,
        ended=[_filed(home, one) for one in ended],
        sides={name.removeprefix(side): partial(_side, home, name) for name in home.names(side)},
        letters=letters,
    )


def _lines(home: Home, journal: Journal) -> Iterator[bytes]:
    return (line for _, line in KeyedRecords(home, journal.name, journal.length).lines(range(journal.length)))


def _filed(home: Home, summary: Summary) -> FiledRun:
    journal = Journal(summary.journal, summary.journal_length)
    is_kept = KeyedRecords(home, journal.name, journal.length).is_there()
    return FiledRun(bare_summary(summary), partial(_lines, home, journal) if is_kept else None)


def _side(home: Home, name: str) -> Iterator[bytes]:
    pieces = home.get(name)
    if pieces is None:
        raise CheckpointError(f"{home.shown}: {name} was removed while it was read; run the command again")
    yield from pieces


def refuse_unless_empty(home: Home) -> None:
    """UsageError if the home has a job."""
    if home.head().state is not None or home.ended():
        raise UsageError(f"{home.shown}: has runs already; clear it first")


def write_contents(
    home: Home,
    contents: Contents,
    *,
    epoch: int,
    stage: Stage,
    keep: Callable[[str, Iterable[bytes]], None],
) -> Callable[[], None]:
    """Write everything but the head; what it returns writes that, in one step, and may be called again."""
    for name, pieces in contents.sides.items():
        keep(name, _read_ahead(pieces))
    for name, text in file_names(contents.letters):
        home.put(INBOX + name, in_pieces([text]))
    ended = [_file(one, stage) for one in contents.ended]
    commit = None
    if contents.checkpoint is not None:
        checkpoint = bare_checkpoint(contents.checkpoint)
        checkpoint.journal = stage(contents.lines())
        commit = Commit(
            seq=checkpoint.seq,
            state=encode_checkpoint(checkpoint),
            run_id=checkpoint.run_id,
            journal=checkpoint.journal.name,
            first_ref=checkpoint.journal.length,
        )
    return lambda: home.replace(epoch, commit, ended)


def _file(run: FiledRun, stage: Stage) -> EndedRun:
    # Without its records, as after pruning: of its journal there is nothing, and it has a length all the same.
    journal = stage(run.lines()) if run.lines is not None else Journal("", 1)
    summary = structs.replace(run.summary, journal=journal.name, journal_length=journal.length)
    return EndedRun(summary.run_id, journal.name, encode_summary(summary))


def _read_ahead(pieces: Pieces) -> Iterable[bytes]:
    """A small side file is read before it is written: it may be the one that it replaces."""
    rest, read, size = iter(pieces()), [], 0
    for piece in rest:
        read.append(piece)
        size += len(piece)
        if size > PIECE_BYTES:
            return chain(read, rest)
    return read

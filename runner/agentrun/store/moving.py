"""The mark of a job that was moved away: what was moved does not run here any more.

**Invariant: from the moment an export that moves a job has its name, the origin refuses to run.** So no crash leaves
two places that both run, and none leaves the job nowhere:

1. The whole export is written under a temporary name, durably. A crash leaves the job as it was; export it again.
2. The mark is set, durably. A crash leaves a job that refuses to run, and the temporary file; run the same export
   again, or undo it.
3. The export gets its name, durably. Import it elsewhere.

The mark names the temporary file, so that a crash between 2 and 3 is told from a move that is complete. Everything of
the job is still at the origin in each case, and `export --undo` lets it run there again.

Rejected: the mark after the name. A crash between them leaves an export that can be imported, and an origin that still
runs: the cron job of the next night would.

The mark names the run that was moved. A start over (--fresh) begins another run, which the mark does not hold back.
"""

from __future__ import annotations

import os
import socket
from shlex import quote

import msgspec

from agentrun.errors import CheckpointError, UsageError
from agentrun.store.port import Store

MOVED = "moved.json"
"""The side file that is the mark."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job went, and when."""

    version: int = 1
    at: str
    host: str
    """The machine that the export was made on."""
    file: str
    """The path of the export on that machine."""
    temporary: str
    """The path that it had before."""
    run_id: str
    """The newest run that was moved."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the export never got its name. Known only on the machine it was made on."""
        return self.host == socket.gethostname() and os.path.lexists(self.temporary)


def read_mark(store: Store) -> Moved | None:
    """Where the job was moved to; None if it was not, or has begun another run since then."""
    pieces = store.fetch(MOVED)
    text = b"".join(pieces) if pieces is not None else b""
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=Moved)
    except ValueError:
        raise CheckpointError(f"{MOVED} of the job is damaged; restore it, or start over with --fresh") from None
    if found.version > 1:
        raise CheckpointError(f"{MOVED} of the job is of version {found.version}, from a newer agentrun; use that one")
    with store.reader(accept_edits=True) as reader:
        return found if reader.run_id == found.run_id else None


def mark_moved(store: Store, mark: Moved) -> None:
    """The job does not run here from now on, durably. For a holder of the lock."""
    store.keep(MOVED, [msgspec.json.encode(mark) + b"\n"])


def check_not_moved(store: Store, job: str, *, fresh: bool = False) -> None:
    """UsageError if the job was moved away: for a launch that has the lock, before it changes anything."""
    if not fresh and (mark := read_mark(store)) is not None:
        raise moved_away(store, job, mark)


def moved_away(store: Store, job: str, mark: Moved) -> UsageError:
    """Says where the job went, and how to have it back."""
    undo = f"{_command('export', store, job)} --undo"
    if mark.is_interrupted:
        return UsageError(
            f"{job}: its move to {mark.file} was interrupted; finish it with: {_command('export', store, job)} "
            f"-o {quote(mark.file)} --move, or undo it with: {undo}"
        )
    return UsageError(
        f"{job}: was moved to {mark.file} on {mark.host} at {mark.at[:16]}Z; resume it where that was imported, or "
        f"import it here again; if it runs nowhere else, continue here with: {undo}"
    )


def _command(verb: str, store: Store, job: str) -> str:
    if store.where or store.folder is None:
        return f"agentrun {verb} {quote(job)}"
    return f"agentrun {verb} {quote(job)} --state-dir {quote(str(store.folder.parent))}"

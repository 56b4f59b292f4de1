"""The mark of a job that was moved away: what was moved does not run here any more.

**Invariant: from the moment an export that moves a job has its name, the origin refuses to run.** So no crash leaves
two places that both run, and none leaves the job nowhere:

1. The whole export is written under a temporary name, durably. A crash leaves the job as it was; export it again.
2. The mark is set, durably. A crash leaves a job that refuses to run, and the temporary file; run the same export
   again, or undo it.
3. If somebody has posted since the inbox was read, the mark is removed, and the export fails. Nobody posts later: who
   finds the mark posts nothing, and who finds it only after posting is told so.
4. The export gets its name, durably. Import it elsewhere.

The mark names the temporary file, so that a crash between 2 and 4 is told from a move that is complete. Everything of
the job is still at the origin in each case, and `export --undo` lets it run there again.

Rejected: the mark after the name. A crash between them leaves an export that can be imported, and an origin that still
runs: the cron job of the next night would.

The mark names the run that was moved. A start over (--fresh) begins another run, which the mark does not hold back;
`moved_note` is what a person should know before that.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from shlex import quote

import msgspec

from agentrun.errors import CheckpointError, UsageError
from agentrun.job.address import read_address
from agentrun.store.local.pointer import read_pointer
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

    @property
    def words(self) -> str:
        """Where the job went, and when, for people."""
        return f"was moved to {self.file} on {self.host} at {self.at[:16]}Z"


def read_mark(store: Store, *, run_id: str | None = None) -> Moved | None:
    """Where the job was moved to; None if it was not, or has begun another run since then.

    `run_id` is the newest run (`Reader.run_id`), for a caller who knows it already. Needs no lock. CheckpointError if
    the mark cannot be read.
    """
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
    if run_id is None:
        with store.reader(accept_edits=True) as reader:
            run_id = reader.run_id
    return found if run_id == found.run_id else None


def mark_moved(store: Store, mark: Moved) -> None:
    """The job does not run here from now on, durably. For a holder of the lock."""
    store.keep(MOVED, [msgspec.json.encode(mark) + b"\n"])


def check_not_moved(store: Store, job: str, *, fresh: bool = False, run_id: str | None = None) -> None:
    """UsageError if the job was moved away.

    For a launch that has the lock, before it changes anything, and for people before they post. `run_id` as for
    `read_mark`.
    """
    if not fresh and (mark := read_mark(store, run_id=run_id)) is not None:
        raise moved_away(store, job, mark)


def moved_note(store: Store) -> str:
    """What to say about a move before the job is started over here; empty if it was not moved away."""
    try:
        mark = read_mark(store)
    except CheckpointError:
        # A start over puts aside what cannot be read.
        return ""
    if mark is None:
        return ""
    if mark.is_interrupted:
        return f"its move to {mark.file} was interrupted"
    return f"{mark.words}, and may run there as well"


def moved_away(store: Store, job: str, mark: Moved) -> UsageError:
    """Says where the job went, and how to have it back."""
    export = command_for("export", store, job)
    if mark.is_interrupted:
        return UsageError(
            f"{job}: its move to {mark.file} was interrupted; finish it with: {export} "
            f"-o {quote(mark.file)} --move, or undo it with: {export} --undo"
        )
    return UsageError(
        f"{job}: {mark.words}; resume it where that was imported, or import it here again; if it runs nowhere else, "
        f"continue here with: {export} --undo"
    )


def command_for(verb: str, store: Store, job: str) -> str:
    """The command that does `verb` to the job in this store, from any folder."""
    command, folder = f"agentrun {verb} {quote(job)}", store.folder
    if folder is None:
        return command
    if store.where and read_pointer(folder) != store.where:
        # Nothing on this machine says where the job is.
        return f"{command} --store {quote(_address_of(store.where, folder))}"
    return f"{command} --state-dir {quote(str(folder.parent))}"


def _address_of(where: str, folder: Path) -> str:
    """The address of a store as it works in any folder: a file may be named as seen from beside the state folder."""
    try:
        return read_address(where, base=folder.parent.parent, where="store").text
    except UsageError:
        # A store of another kind, in its own words.
        return where

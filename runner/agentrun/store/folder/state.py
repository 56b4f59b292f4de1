"""The file state.json: each commit writes a new file under a temporary name, and renames it over the old one.

No file that was once state.json is ever written to again, so whoever has it open reads one state, whole.
"""

from __future__ import annotations

import os
from pathlib import Path

from agentrun.checkpoint.checkpoint import Checkpoint, decode_checkpoint
from agentrun.errors import AgentrunError, CheckpointError, LaterError
from agentrun.store.folder.journal import journal_number, ways_out
from agentrun.store.local.lock import NAME as LOCK
from agentrun.system.disk import Disk, Held, discard, disk_error, first_moved, open_file, temporary_name

NAME = "state.json"


class StateFile:
    """state.json in one folder. The one that this process read or wrote last stays open, so that another program's can
    be told from it: with a new file for each commit a file system may give the same two inode numbers in turn."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.path = folder / NAME
        self._folder, self._name = str(folder), str(self.path)
        self._disk = disk
        self.held: Held | None = None
        """None if there was no state.json."""

    def exists(self) -> bool:
        return os.path.lexists(self._name)

    def read(self, *, hold: bool = False) -> bytes:
        """Its text; with `hold` this is the file that the next one may replace."""
        held = Held(open_file(self._name, os.O_RDONLY), self._name)
        try:
            found = held.stat()
            held.stamp = (found.st_mtime_ns, found.st_size)
            with os.fdopen(held.fd, "rb", closefd=False) as file:
                text = file.read()
        except BaseException:
            held.close()
            raise
        if hold:
            self.forget()
            self.held = held
        else:
            held.close()
        return text

    def forget(self) -> None:
        """There is no state.json from here on."""
        if self.held is not None:
            self.held.close()
            self.held = None

    def write(self, text: bytes) -> Held:
        """Write the next one under a temporary name; then either `replace` with it or `drop` it."""
        path = temporary_name(self._folder, NAME)
        new = Held(self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), path)
        try:
            self._disk.write(new.fd, text, 0)
        except BaseException:
            self.drop(new)
            raise
        return new

    def replace(self, new: Held, folder: Held, lock: Held) -> None:
        """Put the new one in its place, durably."""
        old = self.held
        try:
            self._disk.fsync(new.fd)
            found = os.fstat(new.fd)
            # Again, now that the disk was waited for: what is renamed over cannot be had back.
            if (moved := first_moved(new, lock, folder, *([old] if old else []))) is not None:
                raise refusal(moved)
            if old is None and os.path.lexists(self._name):
                raise replaced(self._name)
            self._disk.replace(new.path, self._name)
            self._disk.fsync(folder.fd)
        except BaseException:
            self.drop(new)
            raise
        new.path, new.stamp = self._name, (found.st_mtime_ns, found.st_size)
        self.held = new
        if old is not None:
            old.close()

    def drop(self, new: Held) -> None:
        """The new one does not take its place after all."""
        new.close()
        discard(self._disk, new.path)

    def unlink(self) -> None:
        if self.exists():
            self._disk.unlink(self._name)


def refusal(moved: Held) -> AgentrunError:
    """Why nothing may be written: our descriptor was closed, or another program has put something in its place."""
    try:
        moved.stat()
    except OSError as error:
        return disk_error(moved.path, error)
    if os.path.basename(moved.path) == LOCK:
        return LaterError(
            f"{moved.path}: was removed, or another runner took the job, while this one was running; this one stopped, "
            f"and nothing finished is lost: resume when no other runner is at work"
        )
    return replaced(moved.path)


def replaced(path: Path | str) -> CheckpointError:
    return CheckpointError(f"{path}: was replaced by another program while this one was running")


def read_checkpoint(text: bytes, path: Path, *, accept_edits: bool = False) -> Checkpoint:
    """The checkpoint in a state.json, which names one of our journals."""
    what_to_do = ways_out(path.parent, "put the original back")
    checkpoint = decode_checkpoint(text, where=str(path), accept_edits=accept_edits, what_to_do=what_to_do)
    if journal_number(checkpoint.journal.name) is None:
        raise CheckpointError(
            f"{path}: journal.name is {checkpoint.journal.name!r}, which is not a journal's; {what_to_do}"
        )
    return checkpoint

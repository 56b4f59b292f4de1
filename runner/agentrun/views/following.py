"""Following what an item in flight prints.

A running item prints into the log of its slot. When its attempt is over, all of that is moved to the item's own log,
below a heading that says how the attempt ended, and the slot is another item's: see `outputs.logs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentrun.outputs.logs import HEADING, log_paths
from agentrun.outputs.workspace import Workspace
from agentrun.system.disk import open_to_read
from agentrun.views.finding import KnownJob
from agentrun.views.item import ItemView, State

_STATES: dict[str, State] = {"done": "done", "failed": "failed", "skipped": "skipped", "waiting": "waiting"}
SETTLED = ("done", "failed", "skipped")
_END_BYTES = 256


@dataclass(frozen=True, slots=True)
class Heard:
    """What an item has printed since the last look."""

    printed: bytes
    state: State
    is_over: bool
    """Whether nothing more is to be expected: the item is settled, or nobody is at work."""


class ItemFollower:
    """`catch_up` gives what the item has printed so far, `look` what it has printed since."""

    def __init__(self, known: KnownJob, view: ItemView) -> None:
        self._store = known.store
        self._folder = Workspace(known.store).logs
        self._key = view.key
        self._state: State = view.state
        self._slot = view.slot
        self._seq = self._newest()[0]
        self._own_at = self._slot_at = 0
        """How much of the item's own log, and of its slot's, is known."""
        self._end = b""
        """The end of what is known of the attempt in flight."""
        self._own_end = b""
        """The end of what is known of the item's own log."""
        self._done_stamp = _stamp(self._done)

    def catch_up(self) -> bytes:
        before, own = _read(self._done), _read(self._own)
        said = self._read_slot()
        self._own_at, self._own_end = len(own), own[-_END_BYTES:]
        self._slot_at, self._end = len(said), said[-_END_BYTES:]
        return before + own + said

    def look(self) -> Heard:
        # In this order: if the item is still in its slot after the slot's log was read, that was the item's.
        said = self._read_slot()
        with self._store.reader() as reader:
            holder = reader.holder()
            running = reader.checkpoint.running if reader.checkpoint is not None and holder is not None else []
        slot = next((one.slot for one in running if one.key == self._key), None)
        printed = self._read_ended()
        if not printed and slot is not None and slot == self._slot:
            printed = self._rest(said)
            self._slot_at, self._end = len(said), (self._end + printed)[-_END_BYTES:]
        if slot != self._slot:
            self._slot, self._slot_at, self._end = slot, 0, b""
        return Heard(printed, *self._judge(slot is not None, is_held=holder is not None))

    def _judge(self, is_running: bool, *, is_held: bool) -> tuple[State, bool]:
        if is_running:
            self._state = "running"
            return "running", False
        seq, state = self._newest()
        if seq != self._seq:
            self._seq, self._state = seq, state
        elif self._state == "running":
            self._state = "pending"
        return self._state, self._state in SETTLED or not is_held

    def _newest(self) -> tuple[int, State]:
        """The number and the meaning of the item's newest record."""
        with self._store.reader() as reader:
            found = [record for _, record in reader.search(self._key) if record.key == self._key]
        if not found:
            return 0, "pending"
        newest = max(found, key=lambda record: record.seq)
        return newest.seq, _STATES.get(newest.kind, "pending")

    @property
    def _done(self) -> Path:
        return log_paths(self._folder, self._key, None)[0]

    @property
    def _own(self) -> Path:
        return log_paths(self._folder, self._key, None)[1]

    def _read_slot(self) -> bytes:
        return _read(log_paths(self._folder, self._key, self._slot)[2]) if self._slot is not None else b""

    def _read_ended(self) -> bytes:
        """Of an attempt that is over: the rest of what it printed, and then its heading."""
        own = _read(self._own)
        at, end = self._own_at, self._own_end
        if own and len(own) != at:
            self._own_at, self._own_end = len(own), own[-_END_BYTES:]
        elif (stamp := _stamp(self._done)) != self._done_stamp:
            # Moved, because the item is done.
            own = _read(self._done)
            self._done_stamp, self._own_at, self._own_end = stamp, 0, b""
            if end and own.endswith(end):
                return b""
        else:
            return b""
        if not own.startswith(HEADING, at):
            # Its beginning was dropped.
            at = own.rfind(b"\n" + HEADING) + 1
        heading, _, said = own[at:].partition(b"\n")
        rest = self._rest(said)
        self._slot_at, self._end = 0, b""
        return rest + heading + b"\n"

    def _rest(self, said: bytes) -> bytes:
        """What follows in `said`, all of an attempt's prints or the end of them, on what is known."""
        at, end = self._slot_at, self._end
        if said[:at].endswith(end) and len(said) >= at:
            return said[at:]
        _, found, rest = said.rpartition(end)
        return rest if found else said


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> bytes:
    """Logs are bounded, so the whole file is read."""
    try:
        with open_to_read(path) as file:
            return file.read()
    except OSError:
        return b""

"""What is known of each item: worked out from the records and the source, kept in a few bytes each.

A row is a key that was ever seen; the current items are rows in an order. Rows of items that are gone stay: their
records count again if they come back.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from agentrun.item import key_digest
from agentrun.ranges import Ranges

PENDING, DONE, FAILED, SKIPPED, WAITING = range(5)
STATE_NAMES = ("pending", "done", "failed", "skipped", "waiting")
_STATE_OF = {name: state for state, name in enumerate(STATE_NAMES)}
_SETTLED = (DONE, FAILED, SKIPPED)
NO_REF = 2**64 - 1
NOT_LISTED = 2**32 - 1


class Ledger:
    """Arrays by row, and the order of the current items. About 50 bytes an item."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self._slots = array("i", [-1]) * 64
        self.contents = array("Q")
        """64 bits of the content's hash: of the record, or of the item as listed."""
        self.stamps = array("Q")
        """Of files: size and times. 0 elsewhere."""
        self.refs = array("Q")
        """The newest record, or NO_REF."""
        self.states = bytearray()
        self.agents = array("H")
        self.positions = array("I")
        """The index among the current items, or NOT_LISTED; while records are scanned, the index they name."""
        self.order = array("I")
        """The row at each index."""
        self.agent_names: list[str] = []
        self.generations: dict[int, int] = {}
        self.failed_launches: dict[int, int] = {}
        """Of failed rows: in how many launches, with the same content and agent."""
        self.set_aside: set[int] = set()
        """Failed rows that only redo tries again."""
        self.counts = dict.fromkeys(STATE_NAMES, 0)
        self.versions: dict[str, int] = {}
        """How many of the done items each agent version made."""
        self.last_completed = -1
        self.ranges = {DONE: Ranges(), FAILED: Ranges(), WAITING: Ranges()}

    def __len__(self) -> int:
        return len(self.order)

    # ---- rows

    def find(self, digest: bytes) -> int:
        """The row of a key's digest, or -1."""
        mask = len(self._slots) - 1
        slot = int.from_bytes(digest[:8], "little") & mask
        slots, digests = self._slots, self._digests
        while (row := slots[slot]) >= 0:
            if digests[row * 16 : row * 16 + 16] == digest:
                return row
            slot = (slot + 1) & mask
        return -1

    def add(self, digest: bytes) -> int:
        """A new row for a digest that is not there."""
        row = len(self.states)
        if row * 5 >= len(self._slots) * 3:
            self._grow()
        self._digests += digest
        self._place(row, digest)
        self.contents.append(0)
        self.stamps.append(0)
        self.refs.append(NO_REF)
        self.states.append(PENDING)
        self.agents.append(0)
        self.positions.append(NOT_LISTED)
        return row

    def _place(self, row: int, digest: bytes | bytearray) -> None:
        mask = len(self._slots) - 1
        slot = int.from_bytes(digest[:8], "little") & mask
        while self._slots[slot] >= 0:
            slot = (slot + 1) & mask
        self._slots[slot] = row

    def _grow(self) -> None:
        self._slots = array("i", [-1]) * (len(self._slots) * 2)
        for row in range(len(self.states)):
            self._place(row, self._digests[row * 16 : row * 16 + 8])

    def digest(self, row: int) -> bytes:
        return bytes(self._digests[row * 16 : row * 16 + 16])

    def generation(self, row: int) -> int:
        return self.generations.get(row, 0)

    # ---- from the records

    def apply(self, ref: int, record: Mapping[str, Any]) -> int:
        """Take in a record, in the order of writing: the newest of a key counts."""
        digest = key_digest(record["key"])
        row = self.find(digest)
        if row < 0:
            row = self.add(digest)
        self.refs[row] = ref
        self.contents[row] = int(record["hash"], 16)
        self.stamps[row] = record.get("stamp", 0)
        self.positions[row] = record["index"]
        state = _STATE_OF[record["kind"]]
        self.states[row] = state
        if record["gen"]:
            self.generations[row] = record["gen"]
        self.agents[row] = self.agent_number(record["agent"])
        self._note_failure(row, state, record)
        return row

    def _note_failure(self, row: int, state: int, record: Mapping[str, Any]) -> None:
        self.failed_launches.pop(row, None)
        self.set_aside.discard(row)
        if state == FAILED:
            self.failed_launches[row] = record.get("failed_launches", 1)
            if record.get("set_aside"):
                self.set_aside.add(row)

    def agent_number(self, name: str) -> int:
        try:
            return self.agent_names.index(name)
        except ValueError:
            self.agent_names.append(name)
            return len(self.agent_names) - 1

    def begin_anew(self, row: int) -> None:
        """The item is to be run again on purpose: its next record is of a new generation."""
        self.generations[row] = self.generation(row) + 1
        self.failed_launches.pop(row, None)
        self.set_aside.discard(row)
        self.states[row] = PENDING

    def is_listed(self, row: int) -> bool:
        """Is it one of the items now?"""
        return self.positions[row] != NOT_LISTED

    # ---- the items in their order

    def set_order(self, order: array[int]) -> None:
        """These rows are the items now."""
        # All of them: rows that came from records still say where they were.
        self.positions = array("I", [NOT_LISTED]) * len(self.states)
        self.order = order
        states = bytearray(len(order))
        versions = array("I", bytes(4 * (len(self.agent_names) + 1)))
        for index, row in enumerate(order):
            self.positions[row] = index
            state = self.states[row]
            if state:
                states[index] = state
                if state == DONE:
                    versions[self.agents[row]] += 1
        self.counts = {name: states.count(state) for state, name in enumerate(STATE_NAMES)}
        self.versions = {name: versions[n] for n, name in enumerate(self.agent_names) if versions[n]}
        for state in (DONE, FAILED, WAITING):
            self.ranges[state] = found = Ranges()
            for run in re.finditer(re.escape(bytes([state])) + b"+", states):
                found.add_range(run.start(), run.end() - 1)
        unsettled = re.search(rb"[\x00\x04]", states)
        self.last_completed = (unsettled.start() if unsettled else len(states)) - 1

    def settle(self, row: int, ref: int, record: Mapping[str, Any]) -> None:
        """An item's new record is durable."""
        index = self.positions[row]
        old, new = self.states[row], _STATE_OF[record["kind"]]
        self.refs[row] = ref
        self.contents[row] = int(record["hash"], 16)
        if old == DONE:
            self._count_version(self.agent_names[self.agents[row]], -1)
        self.agents[row] = self.agent_number(record["agent"])
        self.states[row] = new
        self._note_failure(row, new, record)
        if new == DONE:
            self._count_version(record["agent"], 1)
        self.counts[STATE_NAMES[old]] -= 1
        self.counts[STATE_NAMES[new]] += 1
        if old != new:
            if old in self.ranges:
                self.ranges[old].discard(index)
            if new in self.ranges:
                self.ranges[new].add(index)
        self._advance()

    def _count_version(self, name: str, by: int) -> None:
        self.versions[name] = self.versions.get(name, 0) + by
        if not self.versions[name]:
            del self.versions[name]

    def _advance(self) -> None:
        at, order, states = self.last_completed + 1, self.order, self.states
        while at < len(order) and states[order[at]] in _SETTLED:
            at += 1
        self.last_completed = at - 1

    def rows_in(self, *wanted: int) -> Iterator[int]:
        """The current items' rows in these states, in order."""
        for row in self.order:
            if self.states[row] in wanted:
                yield row

    def live_refs(self) -> list[int]:
        """The refs that compaction keeps: the newest record of every key, also of those that are gone."""
        return sorted(ref for ref in self.refs if ref != NO_REF)

    def move_refs(self, old: list[int], new: list[int]) -> None:
        moved = dict(zip(old, new, strict=True))
        for row, ref in enumerate(self.refs):
            if ref != NO_REF:
                self.refs[row] = moved[ref]

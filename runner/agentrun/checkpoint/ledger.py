"""What is known of each item: worked out from the records and the source, kept in a few bytes each.

A row is a key that was ever seen; the current items are rows in an order. Rows of items that are gone stay: their
records count again if they come back.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Literal

from agentrun.checkpoint.record import BESIDE, Question, Record
from agentrun.item import key_digest
from agentrun.money.usage import Usage
from agentrun.values.json import is_empty
from agentrun.values.ranges import Ranges

PENDING, DONE, FAILED, SKIPPED, WAITING = range(5)
StateName = Literal["pending", "done", "failed", "skipped", "waiting"]
STATE_NAMES: tuple[StateName, ...] = ("pending", "done", "failed", "skipped", "waiting")
_STATE_OF: dict[str, int] = {name: state for state, name in enumerate(STATE_NAMES)}
_SETTLED = (DONE, FAILED, SKIPPED)
_FINISHED = (DONE, SKIPPED)
_first_slot = Struct("<Q").unpack_from
_digest_parts = Struct("<QQ").iter_unpack
OWN, EARLIER, TOO_OLD, OTHER_PARAMS, RERUN, FILES_MISSING = range(6)
"""Whose a row's newest record is: this run's, or an earlier run's; and if it is not to be kept, why."""
NO_REF = 2**64 - 1
NOT_LISTED = 2**32 - 1
ROOM = 4096


class Ledger:
    """Arrays by row, and the order of the current items. About 60 bytes an item.

    The arrays are longer than there are `rows`: what is behind them is as of a row that nothing is known of.
    """

    def __init__(self, expected: int = 0, *, run: int = 0) -> None:
        """`expected` is about how many rows there will be; `run` is the number of this run."""
        size = 64
        while size * 3 < expected * 5:
            size *= 2
        self.rows = 0
        self.records = 0
        """How many records were applied, including those that no longer count."""
        self._digests = bytearray()
        self._slots = array("i", [-1]) * size
        self._free_slot = 0
        """Where the last `find` that found nothing ended."""
        self._last_agent: tuple[str, int] = ("", -1)
        self.contents = array("Q")
        """64 bits of the content's hash: of the record, or of the item as listed."""
        self.stamps = array("Q")
        """Of files: size and times. 0 elsewhere."""
        self.refs = array("Q")
        """The newest record, or NO_REF."""
        self.states = bytearray()
        self.origins = bytearray()
        """OWN, EARLIER, or why a result of an earlier run is not kept."""
        self._empty = bytearray()
        """Of done rows: see `Record.is_empty`."""
        self._run = run
        self.agents = array("H")
        self.positions = array("I")
        """The index among the current items, or NOT_LISTED; while records are scanned, the index they name."""
        self.order = array("I")
        """The row at each index."""
        self.glances = array("q")
        """The source's `glance` at each index when it was listed; empty where keys may repeat."""
        self.agent_names: list[str] = []
        self.generations: dict[int, int] = {}
        self.failed_launches: dict[int, int] = {}
        """Of failed rows: in how many launches, with the same content and agent."""
        self.set_aside: set[int] = set()
        """Failed rows that only redo tries again."""
        self.steps: dict[int, list[int]] = {}
        """Of rows that are neither done nor skipped: the records of this generation's steps and answers, in order."""
        self.questions: dict[int, int] = {}
        """Of waiting rows: the number of their question."""
        self.usages: dict[int, Usage] = {}
        """Of rows that are neither done nor skipped: what this generation has used so far, where that was reported."""
        self.with_files: set[int] = set()
        """Rows whose newest record names files."""
        self.edited: set[int] = set()
        """Done rows whose output a person has corrected."""
        self.counts: dict[str, int] = dict.fromkeys(STATE_NAMES, 0)
        self.versions: dict[str, int] = {}
        """How many of the done items each agent version made."""
        self.empty = 0
        """How many of the done items have an empty output."""
        self.last_completed = -1
        self.ranges = {DONE: Ranges(), FAILED: Ranges(), WAITING: Ranges()}

    def __len__(self) -> int:
        return len(self.order)

    # ---- rows

    def places(self) -> array[int]:
        """The row at each index: of the items now, or while there are none, as the records name it; or NOT_LISTED."""
        if self.order:
            return self.order
        # No longer than what can be filled: an index that a person has edited may be anything.
        most = 2 * self.rows
        places = array("I", [NOT_LISTED]) * most
        for row, index in enumerate(self.positions):
            if index < most:
                places[index] = row
        return places

    def is_at(self, row: int, digest: bytes) -> bool:
        """Whether this is the row of the key with that digest."""
        return self._digests[row * 16 : row * 16 + 16] == digest

    def find(self, digest: bytes) -> int:
        """The row of a key's digest, or -1."""
        slots, digests = self._slots, self._digests
        mask = len(slots) - 1
        slot: int = _first_slot(digest, 0)[0] & mask
        while (row := slots[slot]) >= 0:
            # The slice only where it may be the one: nearly all that it meets on its way are others.
            at = row * 16
            if digests[at] == digest[0] and digests[at : at + 16] == digest:
                return row
            slot = (slot + 1) & mask
        self._free_slot = slot
        return -1

    def row_of(self, digest: bytes) -> int:
        """The row of a key's digest: a new one if there is none."""
        row = self.find(digest)
        return row if row >= 0 else self.add(digest)

    def add(self, digest: bytes) -> int:
        """A new row, right after a `find` of this digest that did not find it."""
        row = self.rows
        self.rows = row + 1
        self._digests += digest
        if row * 5 >= len(self._slots) * 3:
            self._grow()
        else:
            self._slots[self._free_slot] = row
        if row == len(self.states):
            self._make_room()
        return row

    def _make_room(self) -> None:
        for column, fill in (
            (self.contents, 0), (self.stamps, 0), (self.refs, NO_REF), (self.agents, 0), (self.positions, NOT_LISTED),
        ):  # fmt: skip
            column.extend(array(column.typecode, [fill]) * ROOM)
        for flags in (self.states, self.origins, self._empty):
            flags.extend(bytes(ROOM))

    def _grow(self) -> None:
        """Room for twice as many, and all digests in it."""
        self._slots = slots = array("i", [-1]) * (len(self._slots) * 2)
        mask = len(slots) - 1
        for row, (first, _) in enumerate(_digest_parts(self._digests)):
            slot = first & mask
            while slots[slot] >= 0:
                slot = (slot + 1) & mask
            slots[slot] = row

    def generation(self, row: int) -> int:
        return self.generations.get(row, 0)

    # ---- from the records

    def apply(self, ref: int, record: Record) -> int:
        """Apply a record; records come in the order in which they were written, and the newest of a key counts."""
        self.records += 1
        digest, kind = key_digest(record.key), record.kind
        row = self.find(digest)
        if is_new := row < 0:
            row = self.add(digest)
        if record.gen != self.generations.get(row, 0):
            self._enter(row, record.gen)
        self.contents[row] = int(record.hash, 16)
        self.stamps[row] = record.stamp
        self.positions[row] = record.index
        self.origins[row] = record.run != self._run
        if kind in BESIDE:
            self._apply_beside(row, ref, record)
            return row
        self.refs[row] = ref
        self.states[row] = state = _STATE_OF[kind]
        self._empty[row] = state == DONE and not record.files and is_empty(record.output) is not None
        if record.files:
            self.with_files.add(row)
        elif row in self.with_files:
            self.with_files.discard(row)
        last, number = self._last_agent
        self.agents[row] = number if record.agent == last else self.agent_number(record.agent)
        if not is_new or state != DONE or record.edited:
            self._note(row, state, record)
        return row

    def _apply_beside(self, row: int, ref: int, record: Record) -> None:
        if record.kind == "redo":
            # The newest of its key, or after a compaction the result that was given up would count again.
            self.refs[row] = ref
        else:
            self.remember(row, ref, record)
        if record.kind == "answer" and self.states[row] == WAITING:
            self.states[row] = PENDING
            self.questions.pop(row, None)

    def _enter(self, row: int, generation: int) -> None:
        """The item has this generation from now on, and is pending."""
        self.generations[row] = generation
        self.states[row] = PENDING
        for facts in (self.failed_launches, self.steps, self.questions, self.usages):
            facts.pop(row, None)
        self._empty[row] = 0
        self.set_aside.discard(row)
        self.edited.discard(row)

    def remember(self, row: int, ref: int, record: Record) -> None:
        """The record of a step or an answer is durable."""
        if self.states[row] in _FINISHED:
            return
        self.steps.setdefault(row, []).append(ref)
        if record.usage is not None:
            self.usages[row] = record.usage

    def _note(self, row: int, state: int, record: Record) -> None:
        """What is kept besides the arrays, of the few rows that have it."""
        if row in self.failed_launches:
            del self.failed_launches[row]
            self.set_aside.discard(row)
        if state == DONE:
            if record.edited:
                self.edited.add(row)
            elif row in self.edited:
                self.edited.discard(row)
        if state in _FINISHED:
            for facts in (self.steps, self.questions, self.usages):
                if facts:
                    facts.pop(row, None)
            return
        if record.usage is not None:
            self.usages[row] = record.usage
        if state == FAILED:
            self.failed_launches[row] = record.failed_launches or 1
            if record.set_aside:
                self.set_aside.add(row)
        if state == WAITING:
            self.questions[row] = record.question.n if isinstance(record.question, Question) else 1

    def agent_number(self, name: str) -> int:
        if name == self._last_agent[0]:
            return self._last_agent[1]
        if name not in self.agent_names:
            self.agent_names.append(name)
        number = self.agent_names.index(name)
        self._last_agent = (name, number)
        return number

    def begin_anew(self, row: int) -> None:
        """The item starts over on purpose: its next record has a new generation."""
        self._enter(row, self.generation(row) + 1)

    def is_settled(self, row: int) -> bool:
        return self.states[row] in _SETTLED

    def is_listed(self, row: int) -> bool:
        """Whether it is one of the current items."""
        return self.positions[row] != NOT_LISTED

    def forget_unlisted(self) -> None:
        """Forget the rows that are no current items: the run's own records do not have them."""
        for row in range(self.rows):
            if not self.is_listed(row):
                self._enter(row, 0)
                del self.generations[row]
                self.refs[row] = NO_REF
                self.origins[row] = OWN

    # ---- the items in their order

    def set_order(self, order: array[int]) -> None:
        """These rows are the items now."""
        # All of them: rows that came from records still say where they were.
        self.positions = array("I", [NOT_LISTED]) * len(self.states)
        self.order = order
        states = bytearray(len(order))
        versions = array("I", bytes(4 * (len(self.agent_names) + 1)))
        self.empty = 0
        for index, row in enumerate(order):
            self.positions[row] = index
            state = self.states[row]
            if state:
                states[index] = state
                if state == DONE:
                    versions[self.agents[row]] += 1
                    self.empty += self._empty[row]
        self.counts = {name: states.count(state) for state, name in enumerate(STATE_NAMES)}
        self.versions = {name: versions[n] for n, name in enumerate(self.agent_names) if versions[n]}
        for state in (DONE, FAILED, WAITING):
            self.ranges[state] = found = Ranges()
            for run in re.finditer(re.escape(bytes([state])) + b"+", states):
                found.add(run.start(), run.end() - 1)
        unsettled = re.search(rb"[\x00\x04]", states)
        self.last_completed = (unsettled.start() if unsettled else len(states)) - 1

    def settle(self, row: int, ref: int, record: Record) -> None:
        """An item's new record is durable: from now on it stands so."""
        old, new = self.states[row], _STATE_OF[record.kind]
        self.refs[row] = ref
        self.origins[row] = record.run != self._run
        if old == DONE:
            self._uncount_done(row)
        name, (last, number) = record.agent, self._last_agent
        self.agents[row] = number if name == last else self.agent_number(name)
        self.states[row] = new
        # Of one that was pending nothing else is kept: nearly all are so, and end well.
        if old != PENDING or new != DONE or self.steps or self.questions or self.usages or record.edited:
            self._note(row, new, record)
        if new == DONE:
            self.versions[name] = self.versions.get(name, 0) + 1
            self._empty[row] = empty = not record.files and is_empty(record.output) is not None
            self.empty += empty
        self._count(row, old, new)

    def resume(self, row: int) -> None:
        """A waiting item has its answer: it is pending again."""
        old, self.states[row] = self.states[row], PENDING
        self.questions.pop(row, None)
        self._count(row, old, PENDING)

    def redo(self, row: int) -> None:
        """One of the current items starts over."""
        if (old := self.states[row]) == DONE:
            self._uncount_done(row)
        self.begin_anew(row)
        self._count(row, old, PENDING)

    def _count(self, row: int, old: int, new: int) -> None:
        index = self.positions[row]
        self.counts[STATE_NAMES[old]] -= 1
        self.counts[STATE_NAMES[new]] += 1
        if old != new:
            if old in self.ranges:
                self.ranges[old].discard(index)
            if new in self.ranges:
                self.ranges[new].add(index)
            if new == PENDING and index <= self.last_completed:
                self.last_completed = index - 1
        if index == self.last_completed + 1:
            order, states = self.order, self.states
            while index < len(order) and states[order[index]] in _SETTLED:
                index += 1
            self.last_completed = index - 1

    def _uncount_done(self, row: int) -> None:
        self.empty -= self._empty[row]
        self._empty[row] = 0
        name = self.agent_names[self.agents[row]]
        self.versions[name] -= 1
        if not self.versions[name]:
            del self.versions[name]

    def order_digest(self) -> str:
        """The same for the same keys in the same order."""
        digest = blake2b(digest_size=16)
        for row in self.order:
            digest.update(self._digests[row * 16 : row * 16 + 16])
        return digest.hexdigest()

    def gone(self) -> Iterator[bytes]:
        """The digests of finished items that are not among the current ones."""
        for row in range(self.rows):
            if self.states[row] in _FINISHED and not self.is_listed(row):
                yield bytes(self._digests[row * 16 : row * 16 + 16])

    def rows_in(self, *wanted: int) -> Iterator[int]:
        """The current items' rows in these states, in order."""
        for row in self.order:
            if self.states[row] in wanted:
                yield row

    def live_refs(self) -> list[int]:
        """The refs that compaction keeps: the newest record of every key, also of those that are gone, and what the
        unfinished ones remember."""
        newest = [ref for ref in self.refs if ref != NO_REF]
        return sorted(newest + [ref for refs in self.steps.values() for ref in refs])

    @property
    def has_garbage(self) -> bool:
        """Whether a record that was taken in no longer counts."""
        live = self.rows - self.refs[: self.rows].count(NO_REF)
        return self.records > live + sum(len(refs) for refs in self.steps.values())

    def move_refs(self, old: list[int], new: list[int]) -> None:
        moved = dict(zip(old, new, strict=True))
        for row, ref in enumerate(self.refs):
            if ref != NO_REF:
                self.refs[row] = moved[ref]
        for refs in self.steps.values():
            refs[:] = [moved[ref] for ref in refs]

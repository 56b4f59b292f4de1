"""Which items a run has, in which order, and how each stands; in some 60 bytes an item."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from agentrun.checkpoint.checkpoint import Running
from agentrun.checkpoint.ledger import NO_REF, NOT_LISTED, PENDING, STATE_NAMES, WAITING, Ledger
from agentrun.checkpoint.record import Record
from agentrun.item import key_digest
from agentrun.items.open import Source
from agentrun.runs.carry import CarryChain
from agentrun.runs.plan import identify_items
from agentrun.views.item import State

Note = Callable[[int, Record], None]
"""Told of every record with its row."""
Numbered = tuple[int, Record]
"""A record behind its ref."""


class Keys:
    """Keys of items that no record has, by the items' positions, in ascending order."""

    def __init__(self) -> None:
        self._text = bytearray()
        """A NUL behind each."""
        self._positions = array("I")
        self._starts = array("Q")

    def add(self, position: int, key: str) -> None:
        self._positions.append(position)
        self._starts.append(len(self._text))
        self._text += key.encode("utf-8", "surrogatepass") + b"\0"

    def at(self, position: int) -> str:
        start = self._starts[bisect_left(self._positions, position)]
        return self._text[start : self._text.index(0, start)].decode("utf-8", "surrogatepass")

    def containing(self, needle: bytes) -> Iterator[int]:
        """The positions of the keys with the needle in them, which is lower case; their own case does not matter."""
        text, starts = self._text.lower(), self._starts
        at = text.find(needle) if b"\0" not in needle else -1
        while at >= 0:
            number = bisect_right(starts, at)
            yield self._positions[number - 1]
            at = text.find(needle, starts[number]) if number < len(starts) else -1


class Standing:
    """The items' rows in a ledger, from records and source; and what only those who look need to know of them."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.has_asked_source = False
        """Whether the source had a say in which items there are, or was to have one."""
        self.can_extend = False
        """Whether new records can be applied; if not, only a new pass over everything shows what they change."""
        self.keys = Keys()
        """Of items without a record to have the key from."""
        self.running: dict[int, int | None] = {}
        """Rows in flight, and their slots."""
        self.differing: dict[int, bool] = {}
        """Rows whose content differs from their records', and whether they would be settled or waiting otherwise."""
        self._last: tuple[int, int, str] | None = None
        """Ref, seq and key of the newest record."""
        self._recorded_at = array("I")
        """By row: the index that the newest record names."""
        self._indexes: array[int] | None = None
        """By position in the order; None if they are the positions themselves."""

    def index(self, position: int) -> int:
        """The index of the item at a position in the order."""
        return position if self._indexes is None else self._indexes[position]

    def position(self, index: int) -> int:
        """The position of the item with this index, or NOT_LISTED."""
        indexes = range(len(self.ledger)) if self._indexes is None else self._indexes
        position = bisect_left(indexes, index)
        return position if position < len(indexes) and indexes[position] == index else NOT_LISTED

    def state(self, row: int) -> State:
        return "running" if row in self.running else STATE_NAMES[self.ledger.states[row]]

    def in_states(self, states: Collection[str] | None, among: Iterable[int]) -> Iterator[int]:
        """Those of the positions whose items are in one of the states; None: in any."""
        if states is None:
            return iter(among)
        order, by_row, running = self.ledger.order, self.ledger.states, self.running
        is_wanted, is_running_wanted = [name in states for name in STATE_NAMES], "running" in states
        return (
            position
            for position in among
            if (is_running_wanted if (row := order[position]) in running else is_wanted[by_row[row]])
        )

    def is_whole(self, total: int) -> bool:
        """Whether the records alone say where each of `total` items is."""
        assert self._indexes is not None
        return len(self._indexes) == total and all(n == index for n, index in enumerate(self._indexes))

    # ---- making it

    def scan(self, records: Iterable[Numbered], *, chain: CarryChain | None = None, note: Note | None = None) -> None:
        """Work through all records."""
        last = None
        for last in records:
            row = self.ledger.apply(*last)
            record = last[1]
            if chain is not None:
                chain.note(row, record)
            if note is not None:
                note(row, record)
        self._last = _mark(*last) if last is not None else None
        self._recorded_at = self.ledger.positions[: self.ledger.rows]

    def follow_records(self, running: Mapping[str, Running], read: Callable[[int], Record]) -> None:
        """The items are those on record, and those that are running; in the order of their records."""
        ledger, unrecorded, self.keys = self.ledger, {}, Keys()
        for key, one in running.items():
            if ledger.find(digest := key_digest(key)) < 0:
                unrecorded[ledger.row_of(digest)] = key
                self._recorded_at.append(one.index)
        at, refs = self._recorded_at, ledger.refs
        order = array("I", sorted(range(len(at)), key=lambda row: (at[row], refs[row])))
        self._indexes = array("I", (at[row] for row in order))
        for position, row in enumerate(order):
            if row in unrecorded:
                self.keys.add(position, unrecorded[row])
            elif refs[row] == NO_REF:
                # In progress, with a few steps done.
                self.keys.add(position, read(ledger.steps[row][0]).key)
        ledger.set_order(order)

    def follow(
        self,
        source: Source,
        *,
        chain: CarryChain | None = None,
        keep_changed: bool = False,
        only_recorded: bool = False,
    ) -> None:
        """The items are those of the source, in its order; as a launch would see them."""
        ledger, order, self.keys = self.ledger, array("I"), Keys()
        self.has_asked_source = True
        for row, key, raw, (_, content, stamp) in identify_items(source, ledger):
            if only_recorded and ledger.refs[row] == NO_REF:
                continue
            # What a person has corrected is never run over.
            counts = ledger.states[row] != PENDING and not keep_changed and row not in ledger.edited
            if (counts or row in ledger.steps) and (content or stamp != ledger.stamps[row]):
                content = content or source.content(raw)
                if int.from_bytes(content[:8], "big") != ledger.contents[row]:
                    ledger.steps.pop(row, None)
                    self.differing[row] = counts
                    if counts:
                        ledger.states[row] = PENDING
            if ledger.refs[row] == NO_REF:
                self.keys.add(len(order), key)
            order.append(row)
        self._indexes = None
        # With a carry, one record may change how all the items behind it stand.
        self.can_extend = chain is None
        ledger.set_order(order)
        if chain is not None:
            at = chain.first_break(ledger, retry_failed=False)
            if at < len(order) and ledger.states[order[at]] == WAITING:
                at += 1  # it keeps waiting
            for row in order[at:]:
                ledger.states[row] = PENDING
            ledger.set_order(order)

    def mark_running(self, running: Mapping[str, Running]) -> None:
        """These items are in flight, and no others."""
        rows = ((self.ledger.find(key_digest(key)), one.slot) for key, one in running.items())
        self.running = {row: slot for row, slot in rows if row >= 0}

    # ---- keeping it

    def extend(self, since: Callable[[int], Iterator[Numbered]]) -> bool:
        """Apply what was recorded since; `since(ref)` gives the records from a ref on.

        False if the source has to be asked, too: the last record is not where it was, or one is of an item that is not
        listed, or of one that differs from the source, or may (it was edited), and was not started over. This is then
        of no use any more.
        """
        ledger, last = self.ledger, self._last
        records = since(last[0] if last is not None else 0)
        if last is not None:
            ref, record = next(records, (-1, None))
            if record is None or _mark(ref, record) != last:
                return False
        for ref, record in records:
            row = ledger.find(key_digest(record.key))
            if row < 0 or not ledger.is_listed(row):
                return False
            if row in self.differing or row in ledger.edited:
                if record.gen == ledger.generation(row):
                    return False
                # Started over, as it is in the source now.
                self.differing.pop(row, None)
            ledger.apply(ref, record)
            self._last = _mark(ref, record)
        if self._last != last:
            # It also puts the positions right, which a record overwrites with the index that it names.
            ledger.set_order(ledger.order)
        return True


def _mark(ref: int, record: Record) -> tuple[int, int, str]:
    return ref, record.seq, record.key

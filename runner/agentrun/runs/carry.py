"""Jobs with a carry: how far the records' history holds, and where a run goes back to."""

from __future__ import annotations

from agentrun.checkpoint.ledger import DONE, FAILED, PENDING, SKIPPED, WAITING, Ledger
from agentrun.checkpoint.record import BESIDE, Record
from agentrun.runs.plan import Plan


def go_back(ledger: Ledger, plan: Plan, position: int) -> None:
    """For a job with a carry: everything from `position` on is run again, with the carry before it.

    An item that waits there keeps waiting, and nothing behind it runs before it is answered.
    """
    if position < len(ledger.order) and ledger.states[ledger.order[position]] == WAITING:
        position += 1
    for row in ledger.order[position:]:
        state = ledger.states[row]
        if state != PENDING:
            if row in plan.contents_now:
                plan.kept_changed -= 1
                ledger.contents[row] = plan.contents_now.pop(row)
            else:
                plan.kept -= state in (DONE, SKIPPED)
            plan.waiting -= state == WAITING
            plan.left -= state == FAILED
            ledger.begin_anew(row)
            plan.again += 1
    # What moved comes at `position` or after it.
    plan.moved = 0
    plan.examples.pop("moved", None)
    ledger.set_order(ledger.order)


class CarryChain:
    """Each record of a job with a carry names the seq of the record before it: so the history can be checked."""

    def __init__(self) -> None:
        self._seq: dict[int, int] = {}
        self._after: dict[int, int] = {}
        self._index: dict[int, int] = {}

    def note(self, row: int, record: Record) -> None:
        if record.kind in BESIDE:
            return
        # An edited record stands in the place of the one that it was made of.
        self._seq[row] = record.seq if record.as_ is None else record.as_
        self._after[row] = record.after or 0
        self._index[row] = record.index

    def first_break(self, ledger: Ledger, *, retry_failed: bool) -> int:
        before = 0
        for position, row in enumerate(ledger.order):
            state = ledger.states[row]
            if state in (PENDING, WAITING) or (retry_failed and state == FAILED and row not in ledger.set_aside):
                return position
            if self._after.get(row) != before or self._index[row] != position:
                return position
            before = self._seq[row]
        return len(ledger.order)

"""Closing the books: a run is called done only when its records, counts, files and costs agree.

The results pass through here on their way to the disk. What differs raises CheckpointError before anything is replaced,
so a run that is not right stays open, with everything that it has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from agentrun.checkpoint.ledger import NO_REF, STATE_NAMES
from agentrun.checkpoint.record import Record
from agentrun.errors import CheckpointError
from agentrun.item import key_digest
from agentrun.money.usage import Usage
from agentrun.outputs.files import differing_files
from agentrun.outputs.results import Result
from agentrun.runs.run import Run
from agentrun.store.port import Store
from agentrun.values.ranges import Ranges

_DUST = 1e-6
"""US dollars: sums of many floats, each rounded."""


@dataclass(slots=True)
class Books:
    """The books of one run. `results` gives its results, and raises at its end unless everything agrees."""

    run: Run
    store: Store
    results_cost: float | None = None
    """What all results cost, in whichever run; None if no cost was reported."""
    _counts: Counter[str] = field(init=False)
    _ranges: dict[str, Ranges] = field(init=False)
    _recorded: Usage = field(init=False)
    """What this run's own records have used."""

    def results(self) -> Iterator[Result]:
        """The results, in item order. Each pass over them closes the books anew."""
        ledger = self.run.ledger
        self.results_cost, self._recorded, self._counts = None, Usage(), Counter()
        self._ranges = {"done": Ranges(), "failed": Ranges()}
        records = self.store.read(ledger.refs[row] for row in ledger.order)
        for index, (row, record) in enumerate(zip(ledger.order, records, strict=True)):
            self._check(index, row, record)
            if record.kind == "done":
                if record.usage is not None and record.usage.cost is not None:
                    self.results_cost = math.fsum((self.results_cost or 0.0, record.usage.cost))
                yield Result(index, record)
        self._close()

    # ---- each record

    def _check(self, index: int, row: int, record: Record) -> None:
        run, ledger, context = self.run, self.run.ledger, self.run.context
        if not ledger.is_at(row, key_digest(record.key)):
            raise self._differs(f"the record of item {index} is that of {record.key}")
        kind = STATE_NAMES[ledger.states[row]]
        if record.kind != kind:
            raise self._differs(f"{record.key} is {kind}, but its record says {record.kind}")
        if record.gen != ledger.generation(row) or int(record.hash, 16) != ledger.contents[row]:
            raise self._differs(f"the result of {record.key} belongs to another version of the item")
        if not context.first <= record.run <= context.number or record.seq > run.checkpoint.seq:
            raise self._differs(f"the result of {record.key} comes from run {record.run}, which is not of this series")
        self._counts[kind] += 1
        if kind in self._ranges:
            self._ranges[kind].add(index)
        if record.run == context.number:
            if record.usage is not None:
                self._recorded.add(record.usage)
            if record.files:
                self._check_files(record)

    def _check_files(self, record: Record) -> None:
        folder = self.run.output.parent
        for file, what in differing_files(folder, record.files):
            raise self._differs(f"{Path(folder, file.path)}, a file of {record.key}, {what}", "redo that item")

    # ---- all of them

    def _close(self) -> None:
        checkpoint, ledger = self.run.checkpoint, self.run.ledger
        for kind, count in ledger.counts.items():
            if not count == self._counts[kind] == checkpoint.counts.get(kind, 0):
                raise self._differs(f"{self._counts[kind]} records are {kind}, but {count} items")
        for kind, listed in (("done", checkpoint.done), ("failed", checkpoint.failed)):
            if self._ranges[kind].listed() != listed:
                raise self._differs(f"the positions of the {kind} items are not those of their records")
        # Totals of versions that did not number runs, or that a person has edited, need not add up.
        if self.run.context.number and not self.run.context.estimated:
            self._check_usage()

    def _check_usage(self) -> None:
        totals, ledger = self.run.purse.totals, self.run.ledger
        parts = chain([self._recorded, totals.unrecorded or Usage()], self._gone(), superseded(self.run, self.store))
        if totals == type(totals)() and self._recorded == Usage():
            return
        sum_ = Usage()
        for part in parts:
            sum_.add(part)
        paid = math.fsum((sum_.cost or 0.0, totals.lost))
        slack = _DUST + 1e-9 * len(ledger)
        is_same = (sum_.input_tokens, sum_.output_tokens, sum_.requests) == (
            totals.input_tokens, totals.output_tokens, totals.requests,
        )  # fmt: skip
        if not is_same or abs(paid - (totals.cost or 0.0)) > slack:
            raise self._differs(
                f"its usage adds up to ${paid:.6f} and {sum_.tokens:,} tokens in the records, "
                f"but ${totals.cost or 0.0:.6f} and {totals.tokens:,} tokens were counted",
                f"report this, and finish it with: agentrun resume {self.run.job.name} --accept-edits",
            )

    def _gone(self) -> Iterator[Usage]:
        """What this run paid for items that are no longer in the source."""
        ledger = self.run.ledger
        rows = [row for row in range(ledger.rows) if not ledger.is_listed(row) and ledger.refs[row] != NO_REF]
        for record in self.store.read(ledger.refs[row] for row in rows):
            if record.usage is not None and record.run == self.run.context.number:
                yield record.usage

    def _differs(self, what: str, remedy: str = "report this, or start over with --fresh") -> CheckpointError:
        return CheckpointError(
            f"{self.run.job.name}: the books do not close: {what}; "
            f"nothing was replaced, and the run stays open; {remedy}"
        )


def superseded(run: Run, store: Store) -> Iterable[Usage]:
    """What this run's own records of generations that were given up have used; none once compaction has dropped them.

    Of each generation the newest record counts, because it includes the usage of those before it. One that still is the
    newest of its item is not dropped: the item is to be run again.
    """
    ledger = run.ledger
    if not ledger.generations:
        return ()
    found: dict[tuple[int, int], Usage | None] = {}
    for ref, record in store.scan():
        row = ledger.find(key_digest(record.key))
        if record.gen >= ledger.generation(row) or record.run != run.context.number:
            continue
        if ref == ledger.refs[row]:
            found[row, record.gen] = None
        elif record.usage is not None:
            found[row, record.gen] = record.usage
    return [usage for usage in found.values() if usage is not None]

"""Closing the books: what must agree before a run is called done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import Raw, structs

from agentrun.checkpoint.record import Record, Try
from agentrun.checkpoint.summary import first_checkpoint
from agentrun.errors import CheckpointError
from agentrun.item import Item
from agentrun.items.open import open_source
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.money.usage import Usage
from agentrun.outputs.results import result_line
from agentrun.runs.books import Books
from agentrun.runs.recovery import recover
from agentrun.runs.run import Run
from agentrun.runs.units import Ended, Work
from agentrun.store.memory import MemoryStore

KEYS = ["a", "b", "c"]


class Ledgered:
    """A run over three items, all done, each for a dollar and 15 tokens."""

    def __init__(self, base: Path) -> None:
        (base / "items.jsonl").write_bytes(b"".join(orjson.dumps({"id": key}) + b"\n" for key in KEYS))
        spec = ItemsSpec(kind="jsonl", pattern="items.jsonl", key="id")
        self.job = Job(name="job", base=base, items=spec, agent="a.py:b", params={}, output="out.jsonl")
        self.store = MemoryStore()
        self.run = self._recover()
        self.commit()
        for row, key in enumerate(KEYS):
            self.run.purse.charge(row, usage())
            self.settle(row, key)

    def _recover(self) -> Run:
        source = open_source(self.job.items, self.job.base)
        checkpoint = self.store.load().checkpoint or first_checkpoint(self.job, number=1)
        return recover(self.store, self.job, source, checkpoint, agent="v1", options=Options())

    def commit(self, *records: tuple[int, Record]) -> None:
        for row, record in records:
            self.run.count(row, record)
        refs = self.store.commit(self.run.next_checkpoint({}), [record for _, record in records])
        for (row, _), ref in zip(records, refs, strict=True):
            self.run.ledger.refs[row] = ref

    def settle(self, row: int, key: str, **changes: Any) -> None:
        tries = [Try(launch=1, number=1, at=1.0, seconds=1.0)]
        ended = Ended("done", orjson.dumps(key.upper()), tries=tries)
        record = self.run.record(Work(row, Item(row, key)), ended, self.run.purse.end(row))
        self.commit((row, structs.replace(record, **changes)))

    def close(self) -> bytes:
        return b"".join(result_line(*one) for one in Books(self.run, self.store).results())


def usage() -> Usage:
    return Usage(cost=1.0, input_tokens=10, output_tokens=5, requests=1)


@pytest.fixture
def books(tmp_path: Path) -> Ledgered:
    return Ledgered(tmp_path)


def test_books_that_close_give_the_results_and_their_cost(books: Ledgered) -> None:
    assert books.close() == b"".join(
        b'{"index":%d,"key":"%s","output":"%s"}\n' % (n, key.encode(), key.upper().encode())
        for n, key in enumerate(KEYS)
    )
    closed = Books(books.run, books.store)
    list(closed.results())
    assert closed.results_cost == 3.0


def _other_item(books: Ledgered) -> None:
    books.run.ledger.refs[0] = books.run.ledger.refs[1]


def _other_run(books: Ledgered) -> None:
    books.settle(0, "a", run=7, usage=usage())


def _other_content(books: Ledgered) -> None:
    books.settle(0, "a", hash="0" * 16, usage=usage())


def _other_kind(books: Ledgered) -> None:
    books.settle(0, "a", kind="skipped", usage=usage())
    books.run.ledger.states[0] = 1


def _miscounted(books: Ledgered) -> None:
    books.run.ledger.counts["done"] += 1


def _misplaced(books: Ledgered) -> None:
    books.run.checkpoint.done = [[0, 1]]


def _unpaid(books: Ledgered) -> None:
    books.run.purse.totals.add(Usage(cost=0.5))


def _untold(books: Ledgered) -> None:
    books.run.purse.totals.add(Usage(input_tokens=3, requests=1))


def _file_gone(books: Ledgered) -> None:
    from agentrun.checkpoint.record import PublishedFile

    books.settle(0, "a", files=[PublishedFile("out.files/a/x", 1, "0" * 64)], usage=usage())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_other_item, "the record of item 0 is that of b"),
        (_other_run, "comes from run 7"),
        (_other_content, "another version of the item"),
        (_other_kind, "a is done, but its record says skipped"),
        (_miscounted, "3 records are done, but 4 items"),
        (_misplaced, "the positions of the done items"),
        (_unpaid, r"\$3.000000 and 45 tokens in the records, but \$3.500000"),
        (_untold, "48 tokens were counted"),
        (_file_gone, r"out.files/a/x, a file of a, is missing"),
    ],
)
def test_what_differs_is_named_and_nothing_is_done(
    books: Ledgered, spoil: Callable[[Ledgered], None], said: str
) -> None:
    spoil(books)
    with pytest.raises(CheckpointError, match=said) as caught:
        books.close()
    assert caught.value.exit_code == 65 and "nothing was replaced" in caught.value.message


def test_what_was_paid_without_a_result_is_a_line_of_its_own(books: Ledgered) -> None:
    run = books.run
    # Cancelled with something spent, started over, and lost in a crash.
    run.purse.charge(0, usage())
    run.purse.put_back(0)
    redo = run.new_record("redo", 1, "b")
    redo.gen = 1
    books.commit((1, redo))
    run.purse.charge(1, usage())
    books.settle(1, "b")
    run.purse.totals.lost, run.purse.totals.cost = 0.25, (run.purse.totals.cost or 0) + 0.25
    assert run.purse.totals.unrecorded == usage() and run.purse.totals.cost == 5.25
    books.close()


def test_totals_that_a_person_has_edited_need_not_add_up(books: Ledgered) -> None:
    books.run.purse.totals.add(Usage(cost=0.5))
    books.run.context.estimated = True
    assert books.close()


def test_an_edited_output_is_as_good_as_any(books: Ledgered) -> None:
    (record,) = books.store.read([books.run.ledger.refs[2]])
    books.commit((2, structs.replace(record, output=Raw(b'"by hand"'))))
    assert b"by hand" in books.close()

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.checkpoint.ledger import FAILED, PENDING, Ledger
from agentrun.checkpoint.record import Kind
from agentrun.errors import ItemsError
from agentrun.item import key_digest
from agentrun.items.open import Source, open_source
from agentrun.job.job import ItemsSpec
from agentrun.runs.carry import go_back
from agentrun.runs.plan import Plan, RepeatedKeys, is_tried_again, list_items, too_much_gone
from unit.records import make_record


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Source]:
    def write(*lines: str, kind: Any = "lines", key: str | None = None) -> Source:
        (tmp_path / "items").write_text("".join(f"{line}\n" for line in lines))
        return open_source(ItemsSpec(kind=kind, pattern="items", key=key), tmp_path)

    return write


def content(source: Source, position: int) -> str:
    """As a record says it."""
    found = source.identify(list(source)[position]).content
    assert found is not None
    return found[:8].hex()


def known(source: Source, *, kinds: Kind = "done", agent: str = "v1") -> Ledger:
    """A ledger with a record of each item of a source."""
    ledger = Ledger()
    for index, raw in enumerate(source):
        key, found = source.identify(raw).key, content(source, index)
        ledger.apply(index, make_record(key, kinds, index=index, agent=agent, hash=found))
    return ledger


def plan(source: Source, ledger: Ledger, **options: Any) -> Plan:
    return list_items(source, ledger, **{"tries_again": lambda row: False, **options})


def test_a_new_run_runs_everything(source: Callable[..., Source]) -> None:
    found = plan(source("a", "b", "c", "d"), Ledger())
    assert (found.total, found.run, found.to_run, found.finished) == (4, 4, 4, 0)
    assert found.first_keys == ["a", "b", "c"] == found.examples["run"]


def test_moved_items_are_kept_and_new_and_gone_ones_are_counted(source: Callable[..., Source]) -> None:
    ledger = known(source("a", "b", "c"))
    found = plan(source("c", "b", "new"), ledger)
    assert (found.total, found.kept, found.moved, found.run, found.gone, found.finished) == (3, 2, 1, 1, 1, 3)
    assert found.examples["moved"] == ["c"] and found.gone_refs == [0]


def test_changed_items_are_run_again_as_a_new_generation(source: Callable[..., Source]) -> None:
    ledger = known(source('{"id": 1, "v": 1}', '{"id": 2, "v": 1}', kind="jsonl", key="id"))
    changed = source('{"id": 1, "v": 2}', '{"v": 1, "id": 2}', kind="jsonl", key="id")
    kept = plan(changed, known(source('{"id": 1, "v": 1}', kind="jsonl", key="id")), keep_changed=True)
    changed = source('{"id": 1, "v": 2}', '{"v": 1, "id": 2}', kind="jsonl", key="id")
    found = plan(changed, ledger)
    assert (found.changed, found.kept, kept.kept_changed) == (1, 1, 0)
    row = ledger.find(key_digest("1"))
    assert ledger.states[row] == PENDING and ledger.generation(row) == 1


def test_with_a_carry_what_comes_after_a_new_item_is_run_again_and_not_kept(source: Callable[..., Source]) -> None:
    ledger = known(source("a", "b", "c"))
    found = plan(source("a", "new", "b", "c"), ledger)
    go_back(ledger, found, 1)
    assert (found.kept, found.run, found.again, found.moved) == (1, 1, 2, 0) and "moved" not in found.examples


def test_failed_items_are_tried_or_left(source: Callable[..., Source]) -> None:
    items = source("a", "b")
    ledger = known(items, kinds="failed")
    first = ledger.find(key_digest("a"))
    found = plan(items, ledger, tries_again=lambda row: row == first)
    assert (found.failed, found.left, found.to_run) == (1, 1, 1)


def test_a_failed_item_is_left_after_three_launches_until_it_or_the_agent_changes(
    source: Callable[..., Source],
) -> None:
    ledger = known(source("a"), kinds="failed")
    tries = {}
    for launches in (1, 2, 3, 4):
        ledger.failed_launches[0] = launches
        tries[launches] = is_tried_again(ledger, 0, agent="v1", retry_all=False)
    assert tries == {1: True, 2: True, 3: False, 4: False}
    assert is_tried_again(ledger, 0, agent="v2", retry_all=False)
    assert is_tried_again(ledger, 0, agent="v1", retry_all=True)
    ledger.set_aside.add(0)
    assert not is_tried_again(ledger, 0, agent="v2", retry_all=True)
    assert ledger.states[0] == FAILED


@pytest.mark.parametrize(
    ("gone", "finished", "accepted", "too_much"),
    [(0, 0, 0, False), (1, 10, 0, False), (2, 10, 0, True), (1, 9, 0, True), (5, 10, 4, False), (6, 10, 4, True)],
)
def test_more_than_a_tenth_of_the_finished_ones_is_too_much(
    gone: int, finished: int, accepted: int, too_much: bool
) -> None:
    assert too_much_gone(Plan(gone=gone, finished=finished), accepted=accepted) is too_much


def test_a_repeated_key_is_an_error_with_both_places_where_keys_are_unique(source: Callable[..., Source]) -> None:
    items = source('{"id": "a"}', '{"id": "b"}', "", '{"id": "a"}', kind="jsonl", key="id")
    with pytest.raises(ItemsError, match=r"line 4: the key 'a' stands in items, line 1 already"):
        plan(items, Ledger())


def test_repeats_are_numbered_and_a_key_that_looks_like_one_keeps_its_own(source: Callable[..., Source]) -> None:
    ledger = Ledger()
    plan(source("a", "a~2", "a", "a"), ledger)
    found = [key for key in ("a", "a~2", "a~3", "a~4") if ledger.find(key_digest(key)) >= 0]
    assert found == ["a", "a~2", "a~3", "a~4"]
    assert [ledger.find(key_digest(key)) for key in found] == list(ledger.order)


def test_next_free_goes_on_where_it_stopped() -> None:
    repeats, asked = RepeatedKeys(), list[bytes]()

    def is_free(digest: bytes) -> bool:
        asked.append(digest)
        return True

    assert [repeats.next_free("a", is_free)[0] for _ in range(3)] == ["a~2", "a~3", "a~4"]
    assert len(asked) == 3

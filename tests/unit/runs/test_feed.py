from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.checkpoint.ledger import Ledger
from agentrun.errors import SourceChangedError
from agentrun.items.open import Source, open_source
from agentrun.job.job import ItemsSpec
from agentrun.runs.feed import feed
from agentrun.runs.plan import list_items


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Source]:
    def write(*lines: str) -> Source:
        # Another file each time: the source under way goes on with the old one, as after an editor's rename.
        new = tmp_path / "new"
        new.write_text("".join(f'{{"id": "{line[0]}", "v": "{line}"}}\n' for line in lines))
        new.replace(tmp_path / "items.jsonl")
        return open_source(ItemsSpec(kind="jsonl", pattern="items.jsonl", key="id"), tmp_path)

    return write


def listed(source: Source) -> Ledger:
    ledger = Ledger()
    list_items(source, ledger, tries_again=lambda row: False)
    return ledger


def test_the_wanted_items_come_in_order_with_their_positions(write: Callable[..., Source]) -> None:
    source = write("a", "b", "c", "d")
    found = list(feed(source, listed(source), lambda row: row % 2 == 1))
    assert [(work.row, work.item.index, work.item.key, work.item.data["v"]) for work in found] == [
        (1, 1, "b", "b"),
        (3, 3, "d", "d"),
    ]


def test_what_is_wanted_is_asked_when_its_turn_comes(write: Callable[..., Source]) -> None:
    source = write("a", "b", "c")
    taken: set[int] = set()
    works = feed(source, listed(source), lambda row: row not in taken)
    assert next(works).item.key == "a"
    taken.add(1)
    assert next(works).item.key == "c"


def test_one_that_changed_since_stops_it(write: Callable[..., Source]) -> None:
    ledger = listed(write("a", "b", "c"))
    works = feed(write("a", "b+", "c"), ledger, lambda row: True)
    assert next(works).item.key == "a"
    with pytest.raises(SourceChangedError, match=r"items\.jsonl, line 2: the item b was changed"):
        next(works)


def test_one_that_is_only_written_otherwise_has_not_changed(write: Callable[..., Source], tmp_path: Path) -> None:
    source = write("a", "b")
    ledger = listed(source)
    (tmp_path / "items.jsonl").write_text('{"id": "a", "v": "a"}\n{"v" : "b",  "id":"b"}\n')
    assert [(work.row, work.item.key) for work in feed(source, ledger, lambda row: True)] == [(0, "a"), (1, "b")]


def test_one_that_is_as_it_was_listed_is_parsed_and_not_hashed(
    write: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write("a", "b")
    ledger = listed(source)
    monkeypatch.setattr("agentrun.items.tables.record_digest", None)
    assert [work.item.data["v"] for work in feed(source, ledger, lambda row: True)] == ["a", "b"]


def test_one_that_changed_and_is_not_wanted_does_not(write: Callable[..., Source]) -> None:
    ledger = listed(write("a", "b", "c"))
    works = feed(write("a", "b+", "c"), ledger, lambda row: row != 1)
    assert [work.item.key for work in works] == ["a", "c"]


def test_what_is_new_since_is_left_for_the_next_listing(write: Callable[..., Source]) -> None:
    ledger = listed(write("a", "b"))
    seen: set[int] = set()
    found = []
    for work in feed(write("n", "a", "b"), ledger, lambda row: row not in seen):
        seen.add(work.row)
        found.append((work.item.index, work.item.key))
    assert found == [(0, "a")]


def test_one_that_moved_since_keeps_the_position_of_the_listing_or_is_left_for_the_next(
    write: Callable[..., Source],
) -> None:
    ledger = listed(write("a", "b", "c"))
    seen: set[int] = set()
    found = []
    for work in feed(write("c", "b", "a"), ledger, lambda row: row not in seen):
        seen.add(work.row)
        found.append((work.item.index, work.item.key))
    assert found == [(2, "c"), (1, "b")]


def test_a_line_that_went_bad_since_is_a_change_and_not_a_usage_error(
    write: Callable[..., Source], tmp_path: Path
) -> None:
    source = write("a", "b")
    ledger = listed(source)
    (tmp_path / "items.jsonl").write_text('{"id": "a", "v": "a"}\n{"id": "b", \n')
    works = feed(source, ledger, lambda row: True)
    next(works)
    with pytest.raises(SourceChangedError, match="line 2: is not JSON") as caught:
        next(works)
    assert caught.value.exit_code == 75

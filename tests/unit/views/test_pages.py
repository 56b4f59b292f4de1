"""Pages of items, by state and by a text that they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.checkpoint.checkpoint import Running
from agentrun.store.folder.journal import SEARCHED_BYTES
from agentrun.views.listing import Listing, open_listing
from unit.made import Made, StoreKind, content_hash

KEYS = ["done", "Failed-Item", "skipped", "waiting", "pending zeta", "Été", "redone"]


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    made = Made(tmp_path, KEYS, kind)
    made.commit(
        made.record("done", output="it was superseded", gen=0),
        made.record("redone", output="an old result of invoice 17"),
    )
    skip = Failure("exception", "Refused by Eve", types=("agentrun.Skip",))
    made.commit(
        made.record("done", output={"Category": "Billing", "amounts": [4711, 0.25, True], "note": 'a "quote"\nand ü'}),
        made.failed("Failed-Item", "no such Customer"),
        made.record("skipped", "skipped", error=skip),
        made.waiting("waiting", "Send this Draft?", to={"name": "Ada Lovelace", "copies": 31}),
        made.record("Été", output=None, warning="It was Slow"),
        made.record("redone", "redo", gen=1),
    )
    return made


def found(listing: Listing, text: str) -> list[str]:
    page = listing.page(text=text)
    assert page.total == len(page.items) and page.start == 0
    return [view.key for view in page.items]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("billing", ["done"]),
        ("CATEGORY", ["done"]),
        ("4711", ["done"]),
        ("0.25", ["done"]),
        ('A "QUOTE"', ["done"]),
        ("and ü", ["done"]),
        ("AND Ü", []),
        ("no such customer", ["Failed-Item"]),
        ("valueerror", ["Failed-Item"]),
        ("ValueError: no such", ["Failed-Item"]),
        ("Error: no", ["Failed-Item"]),
        (" no such", ["Failed-Item"]),
        ("ValueError:", ["Failed-Item"]),
        (": no such", ["Failed-Item"]),
        ("KeyError: no such", []),
        ("refused by eve", ["skipped"]),
        ("send this draft", ["waiting"]),
        ("lovelace", ["waiting"]),
        ("copies", ["waiting"]),
        ("31", ["waiting"]),
        ("slow", ["Été"]),
        ("failed-item", ["Failed-Item"]),
        ("ZETA", ["pending zeta"]),
        ("Été", ["Été"]),
        ("redone", ["redone"]),
        ("ing", ["done", "waiting", "pending zeta"]),
        ("nobody wrote this", []),
        ("zeta\0", []),
        ("\ud800", []),
        ("superseded", []),
        ("invoice 17", []),
        ("done", ["done", "redone"]),
        ("v1", []),
        ("builtins", []),
        ("kind", []),
        ("origin", []),
        (content_hash("done"), []),
        (content_hash("done")[:4], []),
    ],
)
def test_a_text_is_found_in_what_people_see_of_the_newest_record(made: Made, text: str, keys: list[str]) -> None:
    with open_listing(made.store, made.job) as listing:
        assert found(listing, text) == keys


def test_an_item_in_flight_is_found_by_its_key_alone(made: Made) -> None:
    with made.at_work():
        made.commit(running=[Running(index=1, key="Failed-Item", slot=0), Running(index=4, key="pending zeta", slot=1)])
        with open_listing(made.store, made.job) as listing:
            assert found(listing, "no such customer") == []
            assert found(listing, "item") == ["Failed-Item"] and found(listing, "zeta") == ["pending zeta"]


def test_a_changed_item_is_found_by_its_key_alone(made: Made) -> None:
    made.commit(made.record("pending zeta", output="of another content", hash="0" * 16))
    with open_listing(made.store, made.job) as listing:
        assert found(listing, "another content") == [] and found(listing, "zeta") == ["pending zeta"]


def test_an_item_that_is_gone_is_not_found(made: Made) -> None:
    made.items.write_text("Été\n")
    with open_listing(made.store, made.job) as listing:
        assert found(listing, "billing") == [] and found(listing, "slow") == ["Été"]


def test_an_answered_item_is_found_by_its_key_and_not_by_its_question(made: Made) -> None:
    made.commit(made.record("waiting", "answer", question=1, answer=Answer(yes=True, by="Ada")))
    with open_listing(made.store, made.job) as listing:
        assert found(listing, "draft") == [] and found(listing, "WAITING") == ["waiting"]


def test_pages_follow_each_other_and_say_how_many_there_are(tmp_path: Path, kind: StoreKind) -> None:
    made = Made(tmp_path, [f"item {n:03}" for n in range(250)], kind)
    made.commit(*(made.record(key, output=f"n {n}") for n, key in enumerate(made.keys) if n % 2))
    with open_listing(made.store, made.job) as listing:
        pages = [listing.page(start=start) for start in (0, 100, 200, 300)]
        assert [len(page.items) for page in pages] == [100, 100, 50, 0]
        assert [(page.start, page.total) for page in pages] == [(0, 250), (100, 250), (200, 250), (300, 250)]
        assert [view.key for page in pages for view in page.items] == made.keys
        done = listing.page({"done"}, start=120, count=10)
        assert [view.index for view in done.items] == [241, 243, 245, 247, 249] and done.total == 125
        both = listing.page({"pending"}, "ITEM 1", start=48, count=10)
        assert [view.index for view in both.items] == [196, 198] and both.total == 50
        assert listing.page(set()).total == 0 and listing.page(start=-5, count=1).items[0].index == 0
        assert listing.page({"done"}, "n 241").items[0].output == "n 241"


def test_only_the_records_of_the_page_are_read(made: Made) -> None:
    with open_listing(made.store, made.job) as listing:
        read, asked = listing.reader.read, []

        def noted(refs: list[int]) -> object:
            asked.extend(refs)
            return read(refs)

        listing.reader.read = noted  # type: ignore[assignment, method-assign]
        listing.page(start=1, count=2)
        assert len(asked) == 2
        listing.page({"failed", "waiting"}, start=1)
        assert len(asked) == 3


def test_a_text_is_found_wherever_the_pieces_of_the_journal_end(tmp_path: Path) -> None:
    """The folder's journal is searched piece by piece: lines are moved over the border byte by byte, and over two."""
    made = Made(tmp_path, [*"abcd"])
    made.commit(made.record("a", output="x" * (SEARCHED_BYTES - 300)))
    for shift in range(0, 330, 7):
        made.commit(made.record("b", output="." * shift + "Needle"), made.record("c", output="y" * 2 * SEARCHED_BYTES))
        with open_listing(made.store, made.job) as listing:
            assert found(listing, "needle") == ["b"], shift
            assert [key for _, key in _where(listing, "Needle")] == ["b"] * (shift // 7 + 1)
        made.commit(made.record("a", output="x" * (SEARCHED_BYTES - 300)))


def _where(listing: Listing, text: str) -> list[tuple[int, str]]:
    return [(ref, record.key) for ref, record in listing.reader.search(text)]

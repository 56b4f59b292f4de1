"""Which items a person means."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.agents.failure import Failure
from agentrun.errors import UsageError
from agentrun.job.fields import Layer
from agentrun.people.selecting import (
    Selection,
    find_index,
    find_item,
    is_of_cause,
    keys_meant,
    near_misses,
    select,
    select_from_source,
    select_one,
    words_for,
)
from agentrun.views.finding import KnownJob, open_job
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing, open_listing
from unit.made import Made, StoreKind
from unit.records import make_record


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, ["docs/a.txt", "docs/b.txt", "c"], kind)


@pytest.fixture
def listing(made: Made) -> Listing:
    made.commit(made.record("docs/a.txt"), made.failed("c"))
    return open_listing(made.store, made.job)


def test_a_selection_is_by_name_or_by_rule() -> None:
    assert not Selection().is_by_name and not Selection().is_by_rule
    assert Selection(items=["a"]).is_by_name and Selection(indexes=[0]).is_by_name
    for rule in (Selection(failed=True), Selection(cause=""), Selection(agent_version=""), Selection(first=0)):
        assert rule.is_by_rule and not rule.is_by_name


def test_items_by_name_come_in_the_order_they_were_asked_for_each_once(made: Made, listing: Listing) -> None:
    asked = Selection(items=["c", "docs/a.txt", "c"], indexes=[1, 2])
    assert [view.key for view in select(made.known, listing, asked)] == ["c", "docs/a.txt", "docs/b.txt"]


def test_items_by_rule_come_in_item_order(made: Made, listing: Listing) -> None:
    assert [view.key for view in select(made.known, listing, Selection(first=1))] == ["docs/b.txt", "c"]
    assert [view.state for view in select(made.known, listing, Selection(failed=True))] == ["failed"]


def test_one_item_is_one(made: Made, listing: Listing) -> None:
    assert select_one(made.known, listing, Selection(items=["c"])).key == "c"
    assert select_one(made.known, listing, Selection(indexes=[0])).key == "docs/a.txt"
    for wrong in (Selection(), Selection(items=["c", "docs/a.txt"]), Selection(items=["c"], indexes=[2])):
        with pytest.raises(UsageError, match="made: which item"):
            select_one(made.known, listing, wrong)


def test_a_path_that_leads_to_the_items_file_means_the_item(made: Made, listing: Listing, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "docs")
    for ref, here in (
        ("a.txt", tmp_path / "docs"),
        ("./docs/../docs/a.txt", tmp_path),
        (str(tmp_path / "docs" / "a.txt"), Path("/")),
        ("a.txt", tmp_path / "elsewhere"),
    ):
        assert find_item(made.known, listing, ref, here=here).key == "docs/a.txt"
    # Without a place to stand, a word is a key and nothing else.
    with pytest.raises(UsageError, match=r"has no item a\.txt"):
        find_item(made.known, listing, "a.txt")
    assert find_item(made.known, listing, "docs/a.txt").key == "docs/a.txt"


def test_the_key_itself_comes_before_what_it_may_mean_as_a_path(tmp_path: Path) -> None:
    assert keys_meant("a", tmp_path, tmp_path / "sub")[0] == "a"
    assert keys_meant("a", tmp_path, tmp_path / "sub")[1] == "sub/a"
    assert keys_meant("a", tmp_path, None) == ["a"] == keys_meant("a", None, tmp_path)
    assert keys_meant("a", tmp_path, tmp_path) == ["a"]
    assert keys_meant("a\0b", tmp_path, tmp_path) == ["a\0b"]


def test_what_is_not_there_is_told_with_what_may_have_been_meant(made: Made, listing: Listing) -> None:
    with pytest.raises(UsageError, match=r"made: has no item doc/a.txt; did you mean docs/a\.txt, docs/b\.txt\?"):
        find_item(made.known, listing, "doc/a.txt")
    with pytest.raises(UsageError, match="has no item zzz; see them with: agentrun items made"):
        find_item(made.known, listing, "zzz")
    with pytest.raises(UsageError, match="there is no item 3; it has 3, the first is 0"):
        find_index(made.known, listing, 3)
    with pytest.raises(UsageError, match=r"has no item x{100}; see"):
        find_item(made.known, listing, "x" * 5000)


def test_near_misses_are_few_and_those_that_contain_the_word_come_first() -> None:
    keys = [f"reports/{n}.txt" for n in range(1000)] + ["invoices/march.pdf"]
    assert near_misses("march", keys) == ["invoices/march.pdf"]
    assert near_misses("MARCH", keys) == ["invoices/march.pdf"]
    assert len(near_misses("reports", keys)) == 3
    assert near_misses("report/77.txt", keys)[0] == "reports/77.txt"
    assert near_misses("", ["a"]) == [] and near_misses("x", []) == []


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("docs/a.txt", "docs/a.txt"),
        ("a b", "'a b'"),
        ("it's", """'it'"'"'s'"""),
        ("", "''"),
        ("été 日本", "'été 日本'"),
        ("k" * 200, "k" * 200),
        # What a person cannot copy from a terminal, or the parser would read as a flag.
        ("k" * 201, "--index 7"),
        ("-a", "--index 7"),
        ("a\nb", "--index 7"),
        ("a\x1b[31mb", "--index 7"),
        ("a\u00a0b", "--index 7"),
        ("a\u200bb", "--index 7"),
        ("a\udc80", "--index 7"),
    ],
)
def test_a_command_names_an_item_by_its_key_if_that_can_be_copied(key: str, words: str) -> None:
    assert words_for(key, 7) == words


def failed(message: str) -> ItemView:
    error = Failure("exception", message, types=("builtins.ValueError",))
    return ItemView(0, "a", "failed", make_record("a", "failed", error=error))


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("row 17", True),
        ("ROW 17 IS SHORT", True),
        ("ValueError: row 9 is short", True),
        ("ValueError: row … is short", True),
        ("ValueError: row…", True),
        ("is\n short", True),
        ("row 9", False),
        ("ValueError: row 9", False),
        ("KeyError: row 17 is short", False),
        ("", False),
        (" ", False),
    ],
)
def test_a_cause_is_meant_by_its_words_or_by_a_message_that_differs_only_in_numbers(text: str, is_meant: bool) -> None:
    assert is_of_cause(failed("row 17 is\n short"), text) is is_meant


def test_only_failed_items_have_a_cause() -> None:
    skipped = ItemView(0, "a", "skipped", make_record("a", "skipped", error=Failure("exception", "row 17")))
    assert not is_of_cause(skipped, "row")


# ---- from the source


def test_items_of_the_source_are_found_though_nothing_ran_yet(made: Made, tmp_path: Path) -> None:
    asked = Selection(items=["c", "a.txt"], indexes=[1], here=tmp_path / "docs")
    found = select_from_source(made.known, asked)
    assert [(item.index, item.key, item.line) for item in found] == [
        (2, "c", "c"),
        (0, "docs/a.txt", "docs/a.txt"),
        (1, "docs/b.txt", "docs/b.txt"),
    ]


def test_items_that_the_source_does_not_have_are_told(made: Made) -> None:
    for selection, says in (
        (Selection(items=["docs/c.txt"]), r"has no item docs/c\.txt; did you mean"),
        (Selection(indexes=[3]), "there is no item 3; the first is 0"),
    ):
        with pytest.raises(UsageError, match=says):
            select_from_source(made.known, selection)
    with pytest.raises(UsageError, match="its job file cannot be read, so its items are not known"):
        select_from_source(KnownJob("made", made.store), Selection(items=["c"]))


def test_standard_input_that_was_read_for_this_is_the_source(made: Made, tmp_path: Path) -> None:
    spool = tmp_path / "typed.spool"
    spool.write_text("first\nsecond\n")
    flags = {"name": "piped", "agent": "agent.py:agent", "items": {"lines": "-"}}
    job = open_job(None, flags=Layer("flags", flags), cwd=tmp_path, environ={}).job
    (item,) = select_from_source(KnownJob("piped", made.store, job), Selection(items=["second"]), spool=spool)
    assert (item.index, item.line) == (1, "second")

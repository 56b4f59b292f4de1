"""Items with questions, steps, answers and edits, as they are listed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.agents.failure import Failure
from agentrun.agents.messages import Answer
from agentrun.checkpoint.record import Edited, PublishedFile
from agentrun.money.usage import Usage
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing, open_listing
from unit.made import Made, StoreKind

YES = Answer(yes=True, by="Eve")


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


def listings(made: Made) -> Iterator[Listing]:
    """As the source has them, and from the records alone."""
    for job in (made.job, None):
        with open_listing(made.store, job) as listing:
            yield listing


def find(listing: Listing, key: str) -> ItemView:
    view = listing.find(key=key)
    assert view is not None and view.key == key
    return view


def test_a_waiting_item_has_its_question_and_what_was_done_so_far(made: Made) -> None:
    made.commit(made.record("b", "step", [1, 2], name="search", n=0, no=0))
    made.commit(made.record("a"), made.record("b", "answer", question=1, answer=YES))
    made.commit(made.waiting("b", n=2, draft="x"))
    for listing in listings(made):
        view = find(listing, "b")
        assert view.state == "waiting" and view.question is not None
        assert (view.question.n, view.question.details) == (2, {"draft": "x"})
        assert [(one.kind, one.output, one.answer) for one in listing.steps(view)] == [
            ("step", [1, 2], None),
            ("answer", None, YES),
        ]
        assert listing.has_steps(view) and not listing.has_steps(find(listing, "a"))
        assert listing.counts["waiting"] == 1
        assert find(listing, "a").question is None


def test_an_answered_item_is_pending_again_with_its_steps(made: Made) -> None:
    made.commit(made.record("c"), made.waiting("b"), made.record("a", "step", 1, name="x", n=0, no=0))
    made.commit(made.record("b", "answer", question=1, answer=YES))
    for listing in listings(made):
        assert [(view.key, view.state) for view in listing.items()][:3] == [
            ("a", "pending"),
            ("b", "pending"),
            ("c", "done"),
        ]
        view = find(listing, "b")
        assert view.question is None and [one.kind for one in listing.steps(view)] == ["answer"]
        assert [one.name for one in listing.steps(find(listing, "a"))] == ["x"]


def test_an_item_begun_anew_is_pending_and_of_the_next_generation(made: Made) -> None:
    made.commit(made.record("a", "step", 1, name="x", n=0, no=0), made.record("a"), made.record("b"))
    made.commit(made.record("a", "redo", gen=1))
    for listing in listings(made):
        view = find(listing, "a")
        assert (view.state, view.gen, listing.steps(view)) == ("pending", 1, [])
        assert [one.key for one in listing.items({"done"})] == ["b"]


def test_steps_of_settled_items_are_named_while_they_are_on_record(made: Made) -> None:
    made.commit(
        made.record("a", "step", 1, name="old", n=0, no=0),
        made.record("a", "redo", gen=1),
        made.record("a", "step", 1, name="x", n=0, no=0, gen=1),
        made.record("a", "step", 2, name="x", n=1, no=1, gen=1),
        made.record("a", "step", 3, name="y", n=0, no=2, gen=1),
        made.record("a", gen=1),
        made.record("b"),
    )
    for listing in listings(made):
        assert listing.step_names([find(listing, "a"), find(listing, "b")]) == {"a": ["x", "y"], "b": []}


def test_a_changed_item_has_no_steps_any_more(made: Made) -> None:
    # Of a line the key is the content: a record of another content stands for one that changed.
    made.commit(made.record("a", "step", 1, name="x", n=0, no=0, hash="0" * 16))
    made.commit(made.record("a", "failed", hash="0" * 16, error=Failure("exception", "no")))
    with open_listing(made.store, made.job) as listing:
        view = find(listing, "a")
        assert (view.state, view.changed, listing.steps(view)) == ("pending", True, [])


def test_steps_of_another_content_do_not_count_and_an_edited_result_always_does(made: Made) -> None:
    made.commit(
        made.record("a", "step", 1, name="x", n=0, no=0, hash="0" * 16),
        made.record("b", hash="0" * 16, edited=Edited("Eve", "")),
        made.record("c", hash="0" * 16),
    )
    with open_listing(made.store, made.job) as listing:
        assert [(view.key, view.state) for view in listing.items()] == [
            ("a", "pending"),
            ("b", "done"),
            ("c", "pending"),
            ("d", "pending"),
        ]
        assert not listing.has_steps(find(listing, "a"))


def test_with_a_carry_an_item_that_waits_goes_on_waiting(tmp_path: Path, kind: StoreKind) -> None:
    made = Made(tmp_path, [*"abc"], kind, carry=True)
    made.commit(made.record("a", after=0, carry=1))
    made.commit(made.waiting("b"))
    with open_listing(made.store, made.job) as listing:
        assert [view.state for view in listing.items()] == ["done", "waiting", "pending"]


def test_usage_edits_and_files_are_those_of_the_record(made: Made) -> None:
    files, edited = [PublishedFile("out.txt", 3, "0" * 64)], Edited("Eve", "2026")
    usage = Usage(cost=0.03, input_tokens=5)
    made.commit(made.record("a", usage=usage, edited=edited, files=files), made.record("b"))
    for listing in listings(made):
        view, plain = find(listing, "a"), find(listing, "b")
        assert (view.usage, view.cost, view.edited, view.files) == (usage, 0.03, edited, files)
        assert (plain.usage, plain.cost, plain.edited, plain.files) == (None, None, None, [])

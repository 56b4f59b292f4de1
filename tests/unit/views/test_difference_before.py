"""One item's result beside its result in the run before."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.checkpoint.summary import checkpoint_after
from agentrun.views.differences import Difference, difference_before
from agentrun.views.listing import open_listing
from unit.made import Made, StoreKind


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


def finish(made: Made, status: str = "finished") -> None:
    made.finish(number=made.checkpoint.context.number, status=status)


def next_run(made: Made) -> None:
    """A run that keeps the results of the one before."""
    with made.at_work(), made.store.reader() as reader:
        assert reader.summary is not None
        context, seq = made.checkpoint.context, made.checkpoint.seq
        made.checkpoint = checkpoint_after(reader.summary, number=context.number + 1)
        made.checkpoint.seq, made.checkpoint.context.identity = seq, context.identity
        made.store.reopen([record for _, record in reader.records()], seq=seq)
        made.commit()


def before(made: Made, key: str) -> Difference | None:
    with open_listing(made.store, made.job) as listing:
        view = listing.find(key=key)
        assert view is not None
        return difference_before(made.store, listing, view)


def outputs(found: Difference | None) -> tuple[object, object] | None:
    if found is None:
        return None
    assert found.before is not None and found.after is not None and found.change == "changed"
    return found.before.value, found.after.value


def test_a_result_is_compared_with_the_newest_finished_run_before(made: Made) -> None:
    made.commit(made.record("a", output=1), made.record("b", output={"x": 1, "y": 2}), made.failed("c"))
    finish(made)
    assert before(made, "a") is None, "there is no run before"
    next_run(made)
    made.commit(
        made.record("a", output=2, gen=1),
        made.record("b", output={"y": 2, "x": 1}, gen=1),
        made.record("c", output="at last", gen=1),
    )
    assert before(made, "d") is None
    for _ in range(2):
        assert outputs(before(made, "a")) == (1, 2)
        assert before(made, "b") is None, "the order of fields is no difference"
        assert before(made, "c") is None, "it failed before"
        if made.checkpoint.context.number == 2 and made.store.load().checkpoint is not None:
            finish(made)


def test_a_result_that_was_given_up_and_a_run_that_was_abandoned_do_not_count(made: Made) -> None:
    made.commit(made.record("a", output="given up"), made.record("b", output="first"))
    made.commit(made.record("a", "redo", gen=1))
    finish(made)
    next_run(made)
    made.commit(made.record("b", output="abandoned", gen=1))
    finish(made, "abandoned")
    next_run(made)
    made.commit(made.record("a", output="now", gen=2), made.record("b", output="now", gen=2))
    assert before(made, "a") is None
    assert outputs(before(made, "b")) == ("first", "now")


def test_an_item_that_is_not_done_has_no_difference(made: Made) -> None:
    made.commit(made.record("a", output=1))
    finish(made)
    next_run(made)
    made.commit(made.failed("a", gen=1))
    assert before(made, "a") is None


def test_a_run_whose_records_are_not_kept_cannot_be_compared_with(tmp_path: Path) -> None:
    made = Made(tmp_path, [*"abcd"])
    made.commit(made.record("a", output=1))
    finish(made)
    journal = made.folder / "runs" / f"{made.run_id}.jsonl"
    next_run(made)
    made.commit(made.record("a", output=2, gen=1))
    assert before(made, "a") is not None
    journal.unlink()
    assert before(made, "a") is None

"""The inbox of every store, and a new run on the records of an old one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentrun.checkpoint.message import MessageError
from agentrun.errors import CheckpointError
from agentrun.store.port import Store
from contract.bench import RUN, began, checkpoint, entry, keys, message, summary

OTHER = "20260505T220311-0a2f19f3a1c"


def posted(store: Store) -> list[dict[str, Any] | None]:
    return [one.message for one in store.inbox()]


def test_what_is_posted_is_there_in_its_order_until_it_is_dropped(again: Callable[[], Store]) -> None:
    store = began(again())
    assert store.inbox() == []
    first = [message("skip", f"k{n}") for n in range(5)]
    later = message("answer", "k9")
    store.post(first)
    store.post([later])
    found = store.inbox()
    assert [one.message for one in found] == [*first, later]
    assert [one.name for one in found] == sorted({one.name for one in found})
    store.drop([found[0].name, found[5].name])
    assert posted(store) == first[1:]
    store.release()
    assert posted(again()) == first[1:]


def test_posting_needs_neither_the_lock_nor_the_run(again: Callable[[], Store]) -> None:
    runner, person = began(again()), again()
    runner.commit(checkpoint(1), [entry("a")])
    person.post([message("redo", "a")])
    assert posted(runner) == posted(person) == [message("redo", "a")]
    runner.commit(checkpoint(2), [entry("b")])
    runner.drop([one.name for one in runner.inbox()])
    assert posted(person) == []


def test_dropping_what_is_gone_is_fine(again: Callable[[], Store]) -> None:
    store = began(again())
    store.post([message("skip", "a")])
    (one,) = store.inbox()
    store.drop([one.name, one.name, "00000000000000000001-00000000.json"])
    store.drop([one.name])
    store.drop([])
    assert store.inbox() == []


def test_what_is_posted_is_as_it_was_when_it_was_posted(again: Callable[[], Store]) -> None:
    store = began(again())
    edit = message("edit", "a", output={"title": "as it was", "n": [2**63, "\u2028", None]})
    store.post([edit])
    edit["output"]["title"] = "changed since"
    (one,) = store.inbox()
    assert one.message is not None and one.message["output"] == {"title": "as it was", "n": [2**63, "\u2028", None]}
    one.message["key"] = "another"
    assert [found.message["key"] for found in again().inbox() if found.message] == ["a"]


@pytest.mark.parametrize(
    "wrong",
    [
        message("skip", "a") | {"version": 2},
        message("skip", "a") | {"kind": "dance"},
        message("skip", "a") | {"reason": 7},
        message("edit", "a", output=float("nan")),
    ],
)
def test_what_is_not_a_message_is_not_posted_nor_what_came_with_it(
    again: Callable[[], Store], wrong: dict[str, Any]
) -> None:
    store = began(again())
    with pytest.raises(MessageError):
        store.post([message("skip", "a"), wrong])
    assert store.inbox() == []
    store.commit(checkpoint(1))


def test_messages_outlive_the_run_and_are_cleared_with_the_job(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")], flush=True)
    store.post([message("redo", "a")])
    store.finish(summary())
    store.prune()
    assert posted(store) == [message("redo", "a")]
    store.clear()
    assert store.inbox() == []


# ---- reopening


def ended(store: Store, run_id: str = RUN, names: str = "abc") -> None:
    began_at = store.load().checkpoint
    assert began_at is None
    for seq, name in enumerate(names, 1):
        store.commit(checkpoint(seq, run_id=run_id), [entry(name, {"n": seq})])
    store.commit(checkpoint(len(names) + 1, run_id=run_id), flush=True)
    store.finish(summary(run_id))


def test_a_reopened_run_begins_with_the_records_of_the_old_one(again: Callable[[], Store]) -> None:
    store = began(again())
    ended(store)
    new = store.reopen(RUN)
    assert new is not None
    assert (new.job, new.seq, new.counts, new.total) == ("triage", 3, {}, 0)
    assert new.run_id != RUN and new.run_id > RUN and new.started_at
    assert new.context == {"launches": 0, "date": new.context["date"], "from_run": RUN}
    assert keys(store) == ["a", "b", "c"]
    assert [record["output"] for record in store.read([ref for ref, _ in store.scan()])] == [
        {"n": n} for n in (1, 2, 3)
    ]
    with pytest.raises(CheckpointError):
        store.commit(checkpoint(1, run_id=new.run_id))
    new.seq += 1
    (ref,) = store.commit(new, [entry("a", "again", gen=1)])
    assert [record["output"] for record in store.read([ref])] == ["again"]
    for _ in range(2):
        assert keys(store) == ["a", "b", "c", "a"]
        assert [record["seq"] for _, record in store.scan()] == [1, 2, 3, 4]
        store.release()
        store = again()
        store.lock(wait_seconds=0)
        found = store.load().checkpoint
        assert found is not None and (found.run_id, found.seq) == (new.run_id, 4)


def test_a_reopened_run_ends_as_any_other_and_can_be_reopened_again(again: Callable[[], Store]) -> None:
    store = began(again())
    ended(store)
    new = store.reopen(RUN)
    assert new is not None
    new.seq += 1
    store.commit(new, [entry("d")], flush=True)
    store.prune()
    store.finish(summary(new.run_id))
    assert [one["run_id"] for one in store.summaries()] == [new.run_id, RUN]
    last = store.reopen(new.run_id)
    assert last is not None and last.seq == 4
    assert keys(store) == ["a", "b", "c", "d"]
    assert last.context["from_run"] == new.run_id
    store.release()
    store = began(again())
    first = store.reopen(RUN)
    assert first is not None and keys(store) == ["a", "b", "c"]


def test_a_run_reopened_and_not_committed_leaves_nothing(again: Callable[[], Store]) -> None:
    store = began(again())
    ended(store)
    assert store.reopen(RUN) is not None
    store.release()
    store = began(again())
    assert store.load().checkpoint is None
    assert keys(store) == []
    store.commit(checkpoint(1, run_id=OTHER), [entry("new")])
    store.prune()
    assert keys(store) == ["new"]


@pytest.mark.parametrize("run_id", ["20200101T000000-00000000000", "../../etc", ""])
def test_a_run_that_is_not_kept_is_not_reopened(again: Callable[[], Store], run_id: str) -> None:
    store = began(again())
    ended(store)
    assert store.reopen(run_id) is None
    store.commit(checkpoint(1, run_id=OTHER))


def test_the_journals_of_three_runs_are_kept(again: Callable[[], Store]) -> None:
    store = began(again())
    runs = [f"2026050{n}T220311-0a2f19f3a1c" for n in range(1, 6)]
    for run_id in runs:
        ended(store, run_id)
        store.prune()
    assert [store.reopen(run_id) is not None for run_id in runs] == [False, False, True, True, True]


def test_an_empty_run_is_reopened_empty(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), flush=True)
    store.finish(summary())
    new = store.reopen(RUN)
    assert new is not None and new.seq == 0
    new.seq += 1
    store.commit(new, [entry("a")])
    assert keys(store) == ["a"]

"""What every store does."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from agentrun.errors import BusyError, CheckpointError
from agentrun.store.port import Store
from contract.bench import began, checkpoint, entry, keys, summary


def test_the_lock_lets_one_in_and_says_who_it_is(again: Callable[[], Store]) -> None:
    first, second = again(), again()
    first.lock(wait_seconds=0)
    with pytest.raises(BusyError) as caught:
        second.lock(wait_seconds=0)
    assert caught.value.exit_code == 75
    assert "another runner has this" in caught.value.message
    if first.folder is not None:
        assert f"pid {os.getpid()}" in caught.value.message
    first.release()
    second.lock(wait_seconds=0)


def test_there_is_nothing_at_first(again: Callable[[], Store]) -> None:
    store = began(again())
    assert store.load().checkpoint is None
    assert keys(store) == []
    assert store.summaries() == []
    assert store.size() == 0


def test_records_are_read_back_in_any_order_and_by_the_next_launch(again: Callable[[], Store]) -> None:
    store = began(again())
    refs: list[int] = []
    for seq in range(1, 21):
        refs += store.commit(checkpoint(seq, total=20), [entry(f"k{seq}", {"n": seq}), entry(f"m{seq}", [seq])])
    assert refs == sorted(set(refs))
    for _ in range(2):
        found = list(store.scan())
        assert [ref for ref, _ in found] == refs
        assert [record["seq"] for _, record in found] == [seq for seq in range(1, 21) for _ in range(2)]
        shuffled = refs[::-3] + refs[::2]
        assert list(store.read(shuffled)) == [dict(found)[ref] for ref in shuffled]
        assert [record["output"] for record in store.read([refs[2], refs[1]])] == [{"n": 2}, [1]]
        store.release()
        store = again()
        store.lock(wait_seconds=0)
        loaded = store.load()
        assert loaded.checkpoint is not None and (loaded.checkpoint.seq, loaded.checkpoint.total) == (20, 20)
        assert loaded.finished is None


def test_a_ref_stays_when_the_records_move_to_the_journal(again: Callable[[], Store]) -> None:
    store = began(again())
    (ref,) = store.commit(checkpoint(1), [entry("first")])
    others = [store.commit(checkpoint(seq), [entry(f"k{seq}")])[0] for seq in range(2, 12)]
    store.commit(checkpoint(12), flush=True)
    assert [r["key"] for r in store.read([others[3], ref])] == ["k5", "first"]
    assert store.size() == store.size([ref, *others])


def test_a_seq_that_does_not_follow_is_refused_and_changes_nothing(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    for seq in (0, 1, 3):
        with pytest.raises(CheckpointError, match=f"seq {seq} does not follow the stored 1"):
            store.commit(checkpoint(seq), [entry("b")])
    assert keys(store) == ["a"]
    store.commit(checkpoint(2), [entry("c")])
    assert keys(store) == ["a", "c"]


def test_a_run_begins_with_seq_1(again: Callable[[], Store]) -> None:
    store = began(again())
    with pytest.raises(CheckpointError):
        store.commit(checkpoint(2))


def test_a_commit_that_has_only_begun_is_not_there(again: Callable[[], Store]) -> None:
    store = began(again())
    (first,) = store.commit(checkpoint(1), [entry("a")])
    made = checkpoint(2, total=7)
    sync = store.begin(made, [entry("b")])
    made.total = 8
    assert keys(store) == ["a"] and [record["key"] for record in store.read([first])] == ["a"]
    (second,) = sync()
    assert keys(store) == ["a", "b"] and [record["key"] for record in store.read([second, first])] == ["b", "a"]
    store.release()
    store = began(again())
    loaded = store.load().checkpoint
    assert loaded is not None and (loaded.seq, loaded.total) == (2, 7)


def test_what_the_caller_does_to_a_checkpoint_later_is_not_committed(again: Callable[[], Store]) -> None:
    store = began(again())
    mine = checkpoint(1, context={"deaths": {"a": 1}})
    store.commit(mine)
    mine.context["launches"] = 7
    mine.context["deaths"]["a"] = 2
    store.release()
    store = again()
    store.lock(wait_seconds=0)
    found = store.load().checkpoint
    assert found is not None and found.context["launches"] == 1 and found.context["deaths"] == {"a": 1}
    found.context["launches"] = 9
    again_found = store.load().checkpoint
    assert again_found is not None and again_found.context["launches"] == 1


def test_finish_files_a_summary_and_clears_the_state(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.finish(summary(total=1))
    assert [one["total"] for one in store.summaries()] == [1]
    store.release()
    store = began(again())
    assert store.load().checkpoint is None
    assert keys(store) == []
    store.commit(checkpoint(1, run_id="20260505T000000-0"), [entry("b")])
    assert keys(store) == ["b"]


def test_the_next_run_may_begin_right_after_a_finish(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.finish(summary(status="abandoned"))
    store.commit(checkpoint(1, run_id="20260505T000000-0"), [entry("b")])
    assert keys(store) == ["b"]


def test_finishing_twice_files_one_summary(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.finish(summary())
    store.finish(summary())
    assert len(store.summaries()) == 1


def test_summaries_come_newest_first(again: Callable[[], Store]) -> None:
    store = began(again())
    for number in range(5):
        store.commit(checkpoint(1, run_id=f"2026050{number}T000000-0"))
        store.finish(summary(f"2026050{number}T000000-0", number=number))
    assert [one["number"] for one in store.summaries()] == [4, 3, 2, 1, 0]


def test_what_is_set_aside_is_no_longer_in_the_way(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.set_aside()
    assert store.load().checkpoint is None
    assert keys(store) == []
    store.commit(checkpoint(1))


def test_compaction_keeps_exactly_what_it_is_given(again: Callable[[], Store]) -> None:
    store = began(again())
    refs = [store.commit(checkpoint(seq), [entry(f"k{seq}", "y" * seq)])[0] for seq in range(1, 16)]
    kept = refs[1::3]
    before = list(store.read(kept))
    moved = store.compact(checkpoint(16), kept)
    assert list(store.read(moved)) == before
    assert list(store.read(moved[::-1])) == before[::-1]
    new = store.commit(checkpoint(17), [entry("new")])
    store.release()
    store = again()
    store.lock(wait_seconds=0)
    store.load()
    assert [record["key"] for record in store.read([*new, *moved])] == ["new", *(r["key"] for r in before)]
    assert keys(store) == [*(record["key"] for record in before), "new"]


def test_compaction_is_a_commit_with_a_seq_of_its_own(again: Callable[[], Store]) -> None:
    store = began(again())
    refs = store.commit(checkpoint(1), [entry("a")])
    with pytest.raises(CheckpointError):
        store.compact(checkpoint(1), refs)
    store.compact(checkpoint(2), refs)
    with pytest.raises(CheckpointError):
        store.commit(checkpoint(2))
    assert keys(store) == ["a"]


def test_clear_removes_everything_and_note_and_keep_are_beside_the_run(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.keep("job.json", [b"{", b"}"])
    store.note({"event": "launch"})
    assert keys(store) == ["a"]
    store.finish(summary())
    store.clear()
    store.release()
    store = began(again())
    assert store.summaries() == [] and store.load().checkpoint is None


def test_release_may_be_called_twice(again: Callable[[], Store]) -> None:
    store = began(again())
    store.release()
    store.release()
    following = again()
    following.lock(wait_seconds=0)
    if following is not store:  # as in memory, where all who open it have the same one
        store.release()
    with pytest.raises(BusyError):
        again().lock(wait_seconds=0)

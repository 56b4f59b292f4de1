"""What a job's store says of it and of its items, read without the lock."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.checkpoint.checkpoint import Running, Speed
from agentrun.checkpoint.record import Try
from agentrun.errors import CheckpointError, ItemsError
from agentrun.job.fields import Layer
from agentrun.job.job import Job
from agentrun.money.budget import Totals
from agentrun.money.usage import Usage
from agentrun.store.folder.store import FolderStore
from agentrun.store.jobs import Jobs
from agentrun.views.finding import open_job
from agentrun.views.item import ItemView
from agentrun.views.jobs import list_jobs, view_job
from agentrun.views.listing import open_listing, read_items, read_source
from unit.made import Made, StoreKind, content_hash
from unit.records import make_record


@pytest.fixture
def made(tmp_path: Path, kind: StoreKind) -> Made:
    return Made(tmp_path, [*"abcd"], kind)


@pytest.fixture
def in_folder(tmp_path: Path) -> Made:
    return Made(tmp_path, [*"abcd"])


def states(made: Made, job: Job | None = None) -> list[tuple[int, str, str]]:
    return [(item.index, item.key, item.state) for item in read_items(made.store, job)]


def test_items_are_those_of_the_source_with_what_is_on_record(made: Made) -> None:
    made.commit(made.record("b", index=1), made.failed("a", index=0))
    made.commit(made.record("c", "skipped", index=2))
    expected = [(0, "a", "failed"), (1, "b", "done"), (2, "c", "skipped"), (3, "d", "pending")]
    assert states(made, made.job) == expected


def test_how_fast_it_goes_is_told_with_times_in_iso_form(made: Made) -> None:
    made.checkpoint.context.speed = Speed(at=1_794_866_640.25, pace=2.0)
    made.commit(made.record("b", index=1))
    with made.at_work():
        speed = view_job(made.store, "made").as_json()["speed"]
    assert speed == {"at": "2026-11-16T22:04:00.250Z", "pace": 2.0, "number": 0}
    assert view_job(made.store, "made").as_json()["speed"] is None


def test_without_the_job_items_are_those_on_record(made: Made) -> None:
    made.commit(made.record("c", index=2), made.record("a", index=0))
    assert states(made) == [(0, "a", "done"), (2, "c", "done")]


def test_the_newest_record_of_a_key_counts(made: Made) -> None:
    made.commit(made.failed("a", index=0))
    made.commit(made.record("a", output="later", index=0))
    (item,) = read_items(made.store)
    assert item.state == "done" and item.output == "later"


def test_records_in_the_journal_and_in_the_checkpoint_are_both_read(in_folder: Made) -> None:
    for key in "abc":
        in_folder.commit(in_folder.record(key, output=key * 100))
    assert in_folder.checkpoint.journal.length and in_folder.checkpoint.outputs
    found = [item.output[0] for item in read_items(in_folder.store, in_folder.job) if item.record]
    assert found == ["a", "b", "c"]


def test_items_that_moved_have_their_position_of_now_and_gone_ones_are_left_out(made: Made) -> None:
    made.commit(*(made.record(key, index=index) for index, key in enumerate("abcd")))
    made.items.write_text("new\nd\na\n")
    assert states(made, made.job) == [(0, "new", "pending"), (1, "d", "done"), (2, "a", "done")]


def test_an_item_that_changed_is_pending_and_its_old_result_does_not_count(made: Made) -> None:
    made.commit(made.record("a", hash="00" * 8), made.record("b", index=1))
    found = list(read_items(made.store, made.job))
    assert [(item.state, item.changed, item.record is None) for item in found[:2]] == [
        ("pending", True, True),
        ("done", False, False),
    ]


def test_with_keep_changed_an_item_that_changed_keeps_its_result(tmp_path: Path, kind: StoreKind) -> None:
    run = Made(tmp_path, ["a"], kind, run={"keep_changed": True})
    run.commit(run.record("a", hash="00" * 8))
    assert states(run, run.job) == [(0, "a", "done")]


def test_with_a_carry_what_comes_after_a_pending_item_is_pending_too(tmp_path: Path, kind: StoreKind) -> None:
    run = Made(tmp_path, ["a", "b", "c"], kind, carry=True)
    run.commit(run.record("a", after=0, carry=1))
    run.commit(run.record("b", after=1, carry=2, hash="00" * 8))
    run.commit(run.record("c", after=2, carry=3))
    assert states(run, run.job) == [(0, "a", "done"), (1, "b", "pending"), (2, "c", "pending")]


def test_repeated_lines_are_told_apart(tmp_path: Path, kind: StoreKind) -> None:
    run = Made(tmp_path, ["a", "a", "b", "a"], kind)
    run.commit(run.record("a~2", index=1, hash=content_hash("a")))
    expected = [(0, "a", "pending"), (1, "a~2", "done"), (2, "b", "pending"), (3, "a~3", "pending")]
    assert states(run, run.job) == expected
    assert [(index, key, make().line) for index, key, make in read_source(run.store, run.job)][3] == (3, "a~3", "a")


def test_items_in_flight_are_running_with_their_slot_while_the_runner_lives(made: Made) -> None:
    with made.at_work():
        made.commit(made.record("a", index=0), running=[Running(index=2, key="c", slot=5)])
        for job in (made.job, None):
            item = next(item for item in read_items(made.store, job) if item.key == "c")
            assert (item.index, item.state, item.slot) == (2, "running", 5)
    assert [state for _, _, state in states(made, made.job)] == ["done", "pending", "pending", "pending"]
    assert [key for _, key, _ in states(made)] == ["a"]


def test_only_the_states_asked_for_are_read(made: Made) -> None:
    made.commit(made.record("a", index=0), made.failed("b", index=1))
    found = read_items(made.store, made.job, states={"failed", "pending"})
    assert [(item.key, item.state) for item in found] == [("b", "failed"), ("c", "pending"), ("d", "pending")]


def test_an_item_is_found_by_key_and_by_index(made: Made) -> None:
    made.commit(made.record("b", index=1))
    with open_listing(made.store, made.job) as listing:
        for key, index in (("b", 1), ("d", 3)):
            by_key, by_index = listing.find(key=key), listing.find(index=index)
            assert by_key == by_index and by_key is not None and by_key.index == index
        assert listing.find(key="x") is None and listing.find(index=4) is None


def test_a_listing_is_not_disturbed_by_what_a_runner_does_meanwhile(made: Made) -> None:
    made.commit(*(made.record(key, output="x" * 300) for key in "abc"))
    listing = open_listing(made.store, made.job)
    items = listing.items()
    assert next(items).key == "a"
    made.commit(made.record("d", index=3))
    made.finish(total=4)
    assert [item.state for item in items] == ["done", "done", "pending"]
    listing.close()


def test_a_finished_run_is_read_from_its_kept_journal_even_if_the_source_is_another(made: Made) -> None:
    made.commit(*(made.record(key, index=index) for index, key in enumerate("abcd")))
    made.finish(total=4)
    made.items.write_text("b\nx\n")
    expected = [(index, key, "done") for index, key in enumerate("abcd")]
    assert states(made, made.job) == states(made) == expected


def test_of_a_finished_run_items_that_had_moved_are_shown_in_their_last_order(made: Made) -> None:
    made.commit(*(made.record(key, index=index) for index, key in enumerate("abc")))
    made.items.write_text("d\na\nb\n")
    made.commit(made.record("d", index=0))
    made.finish(total=3)
    assert states(made, made.job) == [(0, "d", "done"), (1, "a", "done"), (2, "b", "done")]


def test_of_a_finished_run_whose_order_is_lost_nothing_is_left_out_and_that_is_said(made: Made) -> None:
    made.commit(*(made.record(key, index=index) for index, key in enumerate("abc")))
    made.commit(made.record("d", index=0))
    made.finish(total=4)
    made.items.write_text("b\n")
    with open_listing(made.store, made.job) as listing:
        assert sorted(item.key for item in listing.items()) == ["a", "b", "c", "d"]
        assert "moved" in listing.note


def test_what_a_crash_left_behind_the_end_of_a_finished_journal_is_not_read(in_folder: Made) -> None:
    in_folder.commit(in_folder.record("a", output="old", index=0))
    in_folder.commit(*(in_folder.record(key, output="right") for key in "abcd"))
    in_folder.finish(total=4)
    journal = in_folder.folder / "runs" / f"{in_folder.checkpoint.run_id}.jsonl"
    whole = journal.read_bytes()
    earlier = whole.split(b"\n")[0] + b"\n"
    assert b'"old"' in earlier
    for tail in (earlier, b'torn"}\n' + earlier, b"torn"):
        journal.write_bytes(whole + tail)
        assert [item.output for item in read_items(in_folder.store) if item.record] == ["right"] * 4


def test_damage_in_a_journal_is_an_error_and_not_a_shorter_list(in_folder: Made) -> None:
    in_folder.commit(*(in_folder.record(key, output="x" * 300) for key in "abcd"))
    journal = in_folder.folder / in_folder.checkpoint.journal.name
    journal.write_bytes(journal.read_bytes().replace(b"xxx", b"xyx", 1))
    with pytest.raises(CheckpointError, match="the record at byte 0 is damaged"):
        list(read_items(in_folder.store, in_folder.job))
    in_folder.finish(total=4)
    with pytest.raises(CheckpointError, match="the record at byte 0 is damaged"):
        list(read_items(in_folder.store))


def test_a_source_that_cannot_be_read_is_an_error_and_the_records_are_still_there(made: Made) -> None:
    made.commit(made.record("a", index=0))
    made.items.unlink()
    with pytest.raises(ItemsError):
        open_listing(made.store, made.job)
    assert states(made) == [(0, "a", "done")]


def test_a_job_with_another_source_than_its_unfinished_run_is_shown_from_the_records(made: Made) -> None:
    made.commit(made.record("a", index=0))
    (made.items.parent / "other.txt").write_text("x\n")
    flags = {"name": "made", "agent": "agent.py:agent", "items": {"lines": "other.txt"}}
    other = open_job(None, flags=Layer("flags", flags), cwd=made.items.parent, environ={}).job
    with open_listing(made.store, other) as listing:
        assert [item.key for item in listing.items()] == ["a"]
        assert "other items" in listing.note


def test_a_job_that_was_never_run_has_its_items_pending(tmp_path: Path, kind: StoreKind) -> None:
    run = Made(tmp_path, ["a", "b"], kind)
    assert states(run, run.job) == [(0, "a", "pending"), (1, "b", "pending")]
    assert states(run) == []


def test_attempts_are_numbered_and_the_last_one_tells_when_it_ended() -> None:
    tries = [Try(launch=1, number=n, at=100.0 * n, seconds=1.5) for n in (11, 12)]
    item = ItemView(0, "a", "failed", make_record("a", "failed", tries=tries, at=50.0, seconds=1.5))
    assert (item.attempts, item.ended_at) == (12, 1201.5)
    once = ItemView(0, "a", "done", make_record("a", at=50.0, seconds=2.0, launch=3))
    assert (once.attempts, once.ended_at) == (1, 52.0)
    assert once.tries == [Try(launch=3, number=1, at=50.0, seconds=2.0)]
    never = ItemView(0, "a", "pending")
    assert (never.attempts, never.ended_at, never.tries) == (0, 0.0, [])


def test_memory_does_not_hold_the_outputs(tmp_path: Path) -> None:
    run = Made(tmp_path, [f"line {n}" for n in range(3000)])
    for start in range(0, 3000, 500):
        run.commit(*(run.record(f"line {n}", output="x" * 4000) for n in range(start, start + 500)))
    run.checkpoint.outputs = []
    tracemalloc.start()
    count = sum(1 for item in read_items(FolderStore(run.folder), run.job) if item.state == "done")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000
    assert peak < 4_000_000  # the outputs are 12 MB


def test_money_is_read_from_the_checkpoint_and_from_the_summary(made: Made) -> None:
    usage = Totals(cost=0.5, lost=0.1, input_tokens=7, output_tokens=3, requests=2)
    made.checkpoint.context.budget, made.checkpoint.context.token_budget = 2.0, 900
    made.commit(made.record("a", usage=Usage(cost=0.5)), usage=usage)
    view = view_job(made.store, "made")
    assert (view.cost, view.tokens, view.budget, view.token_budget, view.usage) == (0.5, 10, 2.0, 900, usage)
    assert view.as_json()["usage"]["lost"] == 0.1
    made.finish(usage=usage)
    view = view_job(made.store, "made")
    assert (view.status, view.cost, view.tokens, view.budget) == ("finished", 0.5, 10, None)


def double(item: agentrun.Item) -> dict[str, Any]:
    if item["n"] == 2:
        raise agentrun.Fail("two is odd")
    return {"twice": item["n"] * 2}


async def double_async(item: agentrun.Item) -> dict[str, Any]:
    await asyncio.sleep(0)
    return double(item)


def test_a_real_run_that_finished_with_a_failure_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    items = [{"n": n} for n in range(4)]
    summary = agentrun.run(double_async, items=items, name="doubling", allow_failures=1, output="out.jsonl")
    assert summary.ok
    (view,) = list_jobs(Jobs(tmp_path / ".agentrun"))
    store = FolderStore(tmp_path / ".agentrun" / "doubling")
    assert replace(view, age_seconds=0) == replace(view_job(store, "doubling"), age_seconds=0)
    assert (view.status, view.counts["done"], view.counts["failed"]) == ("finished", 3, 1)
    found = list(read_items(store))
    assert [item.state for item in found] == ["done", "done", "failed", "done"]
    assert found[2].cause == "Fail: two is odd" and found[2].failure and found[2].failure.traceback
    assert [one.run_id for one in store.summaries()] == [summary.run_id]

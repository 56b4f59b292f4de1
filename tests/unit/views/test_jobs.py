"""What a job's folder says, read without its lock."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentrun
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.summary import new_checkpoint
from agentrun.errors import CheckpointError, ItemsError
from agentrun.items.port import digest
from agentrun.job.job import Job
from agentrun.job.opening import open_job
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import Entry
from agentrun.views.item import ItemView
from agentrun.views.jobs import read_job_view, read_summaries
from agentrun.views.listing import open_listing, read_items, read_source


class Made:
    """A run made of records, as a launch would have left it."""

    def __init__(self, base: Path, lines: list[str], **values: Any) -> None:
        self.items = base / "items.txt"
        self.items.write_text("".join(f"{line}\n" for line in lines))
        (base / "agent.py").write_text("def agent(item): ...\n")
        flags = {"name": "made", "agent": "agent.py:agent", "items": {"lines": "items.txt"}, **values}
        opened = open_job(None, flags=flags, cwd=base, environ={})
        self.job, self.folder = opened.job, opened.folder
        self.store = FolderStore(self.folder, redo_limit_bytes=400)
        self.store.lock()
        self.store.load()
        self.checkpoint: Checkpoint = new_checkpoint(self.job)
        self.checkpoint.total = len(lines)
        self.checkpoint.context |= {"identity": self.job.identity(), "launches": 1, "agent": "v1"}

    def commit(self, *records: dict[str, Any], **values: Any) -> None:
        self.checkpoint.seq += 1
        for name, value in values.items():
            setattr(self.checkpoint, name, value)
        self.store.commit(self.checkpoint, [self.entry(**record) for record in records])

    def entry(self, key: str, index: int, kind: str = "done", output: bytes = b"1", **fields: Any) -> Entry:
        known = {
            "kind": kind,
            "key": key,
            "gen": 0,
            "index": index,
            "hash": digest(key.encode()).hex()[:16],
            "agent": "v1",
            "launch": 1,
            "at": 100.0,
            "seconds": 2.0,
        }
        if kind == "failed":
            known["error"] = {"origin": "exception", "message": "no", "types": ["builtins.ValueError"]}
        return Entry({**known, **fields}, output if kind == "done" else None)

    def finish(self, **values: Any) -> None:
        self.checkpoint.seq += 1
        self.store.commit(self.checkpoint, flush=True)
        summary = {"job": "made", "run_id": self.checkpoint.run_id, "status": "finished", "total": 0, **values}
        self.store.finish(summary)

    def states(self, job: Job | None = None) -> list[tuple[int, str, str]]:
        return [(item.index, item.key, item.state) for item in read_items(self.folder, job)]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    run = Made(tmp_path, ["a", "b", "c", "d"])
    yield run
    run.store.release()


def test_items_are_those_of_the_source_with_what_is_on_record(made: Made) -> None:
    made.commit({"key": "b", "index": 1}, {"key": "a", "index": 0, "kind": "failed"})
    made.commit({"key": "c", "index": 2, "kind": "skipped"})
    expected = [(0, "a", "failed"), (1, "b", "done"), (2, "c", "skipped"), (3, "d", "pending")]
    assert made.states(made.job) == expected


def test_without_the_job_items_are_those_on_record(made: Made) -> None:
    made.commit({"key": "c", "index": 2}, {"key": "a", "index": 0})
    assert made.states() == [(0, "a", "done"), (2, "c", "done")]


def test_the_newest_record_of_a_key_counts(made: Made) -> None:
    made.commit({"key": "a", "index": 0, "kind": "failed"})
    made.commit({"key": "a", "index": 0, "output": b'"later"'})
    (item,) = read_items(made.folder)
    assert item.state == "done" and item.record and item.record["output"] == "later"


def test_records_in_the_journal_and_in_the_checkpoint_are_both_read(made: Made) -> None:
    for index, key in enumerate("abc"):
        made.commit({"key": key, "index": index, "output": b'"' + key.encode() * 100 + b'"'})
    assert made.checkpoint.journal_length and made.checkpoint.outputs
    found = [item.record["output"][0] for item in read_items(made.folder, made.job) if item.record]
    assert found == ["a", "b", "c"]


def test_items_that_moved_have_their_position_of_now_and_gone_ones_are_left_out(made: Made) -> None:
    made.commit(*({"key": key, "index": index} for index, key in enumerate("abcd")))
    made.items.write_text("new\nd\na\n")
    assert made.states(made.job) == [(0, "new", "pending"), (1, "d", "done"), (2, "a", "done")]


def test_an_item_that_changed_is_pending_and_its_old_result_does_not_count(made: Made) -> None:
    made.commit({"key": "a", "index": 0, "hash": "00" * 8}, {"key": "b", "index": 1})
    found = list(read_items(made.folder, made.job))
    assert [(item.state, item.changed, item.record is None) for item in found[:2]] == [
        ("pending", True, True),
        ("done", False, False),
    ]


def test_with_keep_changed_an_item_that_changed_keeps_its_result(tmp_path: Path) -> None:
    run = Made(tmp_path, ["a"], run={"keep_changed": True})
    run.commit({"key": "a", "index": 0, "hash": "00" * 8})
    assert run.states(run.job) == [(0, "a", "done")]
    run.store.release()


def test_with_a_carry_what_comes_after_a_pending_item_is_pending_too(tmp_path: Path) -> None:
    run = Made(tmp_path, ["a", "b", "c"], carry=True)
    run.commit({"key": "a", "index": 0, "after": 0, "carry": 1})
    run.commit({"key": "b", "index": 1, "after": 1, "carry": 2, "hash": "00" * 8})
    run.commit({"key": "c", "index": 2, "after": 2, "carry": 3})
    assert run.states(run.job) == [(0, "a", "done"), (1, "b", "pending"), (2, "c", "pending")]
    run.store.release()


def test_repeated_lines_are_told_apart(tmp_path: Path) -> None:
    run = Made(tmp_path, ["a", "a", "b", "a"])
    run.commit({"key": "a~2", "index": 1, "hash": digest(b"a").hex()[:16]})
    expected = [(0, "a", "pending"), (1, "a~2", "done"), (2, "b", "pending"), (3, "a~3", "pending")]
    assert run.states(run.job) == expected
    assert [(index, key, make().line) for index, key, make in read_source(run.folder, run.job)][3] == (3, "a~3", "a")
    run.store.release()


def test_items_in_flight_are_running_with_their_slot_while_the_runner_lives(made: Made) -> None:
    made.commit({"key": "a", "index": 0}, running=[{"index": 2, "key": "c", "slot": 5}])
    for job in (made.job, None):
        item = next(item for item in read_items(made.folder, job) if item.key == "c")
        assert (item.index, item.state, item.slot) == (2, "running", 5)
    made.store.release()
    assert [state for _, _, state in made.states(made.job)] == ["done", "pending", "pending", "pending"]
    assert [key for _, key, _ in made.states()] == ["a"]


def test_only_the_states_asked_for_are_read(made: Made) -> None:
    made.commit({"key": "a", "index": 0}, {"key": "b", "index": 1, "kind": "failed"})
    found = read_items(made.folder, made.job, states={"failed", "pending"})
    assert [(item.key, item.state) for item in found] == [("b", "failed"), ("c", "pending"), ("d", "pending")]


def test_an_item_is_found_by_key_and_by_index(made: Made) -> None:
    made.commit({"key": "b", "index": 1})
    with open_listing(made.folder, made.job) as listing:
        for key, index in (("b", 1), ("d", 3)):
            by_key, by_index = listing.find(key=key), listing.find(index=index)
            assert by_key == by_index and by_key is not None and by_key.index == index
        assert listing.find(key="x") is None and listing.find(index=4) is None


def test_a_listing_is_not_disturbed_by_what_a_runner_does_meanwhile(made: Made) -> None:
    made.commit(*({"key": key, "index": index, "output": b'"%s"' % (b"x" * 300)} for index, key in enumerate("abc")))
    listing = open_listing(made.folder, made.job)
    items = listing.items()
    assert next(items).key == "a"
    made.commit({"key": "d", "index": 3})
    made.finish(total=4)
    assert [item.state for item in items] == ["done", "done", "pending"]
    listing.close()


def test_a_finished_run_is_read_from_its_kept_journal_even_if_the_source_is_another(made: Made) -> None:
    made.commit(*({"key": key, "index": index} for index, key in enumerate("abcd")))
    made.finish(total=4)
    made.items.write_text("b\nx\n")
    expected = [(index, key, "done") for index, key in enumerate("abcd")]
    assert made.states(made.job) == made.states() == expected


def test_of_a_finished_run_items_that_had_moved_are_shown_in_their_last_order(made: Made) -> None:
    made.commit(*({"key": key, "index": index} for index, key in enumerate("abc")))
    made.items.write_text("d\na\nb\n")
    made.commit({"key": "d", "index": 0})
    made.finish(total=3)
    assert made.states(made.job) == [(0, "d", "done"), (1, "a", "done"), (2, "b", "done")]


def test_of_a_finished_run_whose_order_is_lost_nothing_is_left_out_and_that_is_said(made: Made) -> None:
    made.commit(*({"key": key, "index": index} for index, key in enumerate("abc")))
    made.commit({"key": "d", "index": 0})
    made.finish(total=4)
    made.items.write_text("b\n")
    with open_listing(made.folder, made.job) as listing:
        assert sorted(item.key for item in listing.items()) == ["a", "b", "c", "d"]
        assert "moved" in listing.note


def test_what_a_crash_left_behind_the_end_of_a_finished_journal_is_not_read(made: Made) -> None:
    made.commit({"key": "a", "index": 0, "output": b'"old"'})
    made.commit(*({"key": key, "index": index, "output": b'"right"'} for index, key in enumerate("abcd")))
    made.finish(total=4)
    journal = made.folder / "runs" / f"{made.checkpoint.run_id}.jsonl"
    whole = journal.read_bytes()
    earlier = whole.split(b"\n")[0] + b"\n"
    assert b'"old"' in earlier
    for tail in (earlier, b'torn"}\n' + earlier, b"torn"):
        journal.write_bytes(whole + tail)
        assert [item.record["output"] for item in read_items(made.folder) if item.record] == ["right"] * 4


def test_damage_in_a_journal_is_an_error_and_not_a_shorter_list(made: Made) -> None:
    made.commit(*({"key": key, "index": index, "output": b'"%s"' % (b"x" * 300)} for index, key in enumerate("abcd")))
    journal = made.folder / made.checkpoint.journal_name
    journal.write_bytes(journal.read_bytes().replace(b"xxx", b"xyx", 1))
    with pytest.raises(CheckpointError, match="byte 0 of the journal is damaged"):
        list(read_items(made.folder, made.job))
    made.finish(total=4)
    with pytest.raises(CheckpointError, match="byte 0 of the journal is damaged"):
        list(read_items(made.folder))


def test_a_source_that_cannot_be_read_is_an_error_and_the_records_are_still_there(made: Made) -> None:
    made.commit({"key": "a", "index": 0})
    made.items.unlink()
    with pytest.raises(ItemsError):
        open_listing(made.folder, made.job)
    assert made.states() == [(0, "a", "done")]


def test_a_job_with_another_source_than_its_unfinished_run_is_shown_from_the_records(made: Made) -> None:
    made.commit({"key": "a", "index": 0})
    (made.items.parent / "other.txt").write_text("x\n")
    flags = {"name": "made", "agent": "agent.py:agent", "items": {"lines": "other.txt"}}
    other = open_job(None, flags=flags, cwd=made.items.parent, environ={}).job
    with open_listing(made.folder, other) as listing:
        assert [item.key for item in listing.items()] == ["a"]
        assert "other items" in listing.note


def test_a_job_that_was_never_run_has_its_items_pending(tmp_path: Path) -> None:
    run = Made(tmp_path, ["a", "b"])
    run.store.release()
    assert run.states(run.job) == [(0, "a", "pending"), (1, "b", "pending")]
    assert run.states() == []


def test_attempts_are_numbered_and_the_last_one_tells_when_it_ended() -> None:
    tries = [{"launch": 1, "number": n, "at": 100.0 * n, "seconds": 1.5} for n in (11, 12)]
    item = ItemView(0, "a", "failed", {"kind": "failed", "tries": tries, "at": 50.0, "seconds": 1.5})
    assert (item.attempts, item.ended_at) == (12, 1201.5)
    once = ItemView(0, "a", "done", {"kind": "done", "at": 50.0, "seconds": 2.0, "launch": 3})
    assert (once.attempts, once.ended_at) == (1, 52.0)
    assert once.tries == [{"launch": 3, "number": 1, "at": 50.0, "seconds": 2.0}]
    never = ItemView(0, "a", "pending")
    assert (never.attempts, never.ended_at, never.tries) == (0, 0.0, [])


def test_memory_does_not_hold_the_outputs(tmp_path: Path) -> None:
    run = Made(tmp_path, [f"line {n}" for n in range(3000)])
    for start in range(0, 3000, 500):
        run.commit(
            *({"key": f"line {n}", "index": n, "output": b'"%s"' % (b"x" * 4000)} for n in range(start, start + 500))
        )
    run.store.release()
    del run.store
    run.checkpoint.outputs = []
    tracemalloc.start()
    count = sum(1 for item in read_items(run.folder, run.job) if item.state == "done")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 3000
    assert peak < 4_000_000  # the outputs are 12 MB


def test_money_is_read_from_the_checkpoint_and_from_the_summary(made: Made) -> None:
    usage = {"cost": 0.5, "lost": 0.1, "input_tokens": 7, "output_tokens": 3, "requests": 2}
    made.checkpoint.context |= {"budget": 2.0, "token_budget": 900}
    made.commit({"key": "a", "index": 0, "usage": {"cost": 0.5}}, usage=usage)
    view = read_job_view(made.folder)
    assert (view.cost, view.tokens, view.budget, view.token_budget, view.usage) == (0.5, 10, 2.0, 900, usage)
    assert view.as_json()["usage"]["lost"] == 0.1
    made.finish(usage=usage)
    view = read_job_view(made.folder)
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
    folder = tmp_path / ".agentrun" / "doubling"
    view = read_job_view(folder)
    assert (view.status, view.counts["done"], view.counts["failed"]) == ("finished", 3, 1)
    found = list(read_items(folder))
    assert [item.state for item in found] == ["done", "done", "failed", "done"]
    assert found[2].cause == "Fail: two is odd" and found[2].failure and found[2].failure.traceback
    assert len(read_summaries(folder)) == 1

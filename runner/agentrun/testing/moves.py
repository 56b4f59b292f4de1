"""The contract of moving: a whole job out of one store and into another, in either direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.message import AnyMessage
from agentrun.checkpoint.record import encode_record
from agentrun.checkpoint.summary import Summary
from agentrun.errors import CheckpointError, UsageError
from agentrun.store.contents import Contents, FiledRun, bare_checkpoint, bare_summary
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Store
from agentrun.testing.examples import (
    LATER_RUN,
    RUN,
    answer,
    checkpoint,
    end_run,
    full_checkpoint,
    keys,
    record,
    records_of_every_kind,
    redo,
    summary,
)
from agentrun.testing.launches import Launches, OnOneStore

SIDES = {"job.json": b'{"version":1}', "items-1.spool": b"a\nb\n" * 1000, "0a.written": b"", "moved.json": b"{}\n"}
PRUNED_RUN = "20260401T220311-0a2f19f3a1c"


class Moved:
    """All that a store must give back of a job that it holds."""

    def __init__(self, store: Store) -> None:
        found = store.contents()
        self.checkpoint: Checkpoint | None = found.checkpoint
        self.lines = [bytes(line) for line in found.lines()]
        self.ended: list[tuple[Summary, list[bytes] | None]] = [
            (one.summary, list(one.lines()) if one.lines is not None else None) for one in found.ended
        ]
        self.sides = {name: b"".join(pieces()) for name, pieces in found.sides.items()}
        self.messages: list[AnyMessage | None] = [one.message for one in store.inbox()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moved) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Moved({vars(self)})"


def fill(store: Store) -> None:
    """A job with everything: runs that ended, one of them without records, an unfinished run, side files, messages."""
    end_run(store)
    for name, text in SIDES.items():
        store.keep(name, [text])
    store.commit(checkpoint(1, run_id=LATER_RUN))
    for seq in range(2, 40):
        store.commit(checkpoint(seq, run_id=LATER_RUN), [record(f"k{seq}", "z" * seq * 30), record(f"m{seq}", [seq])])
    last = structs.replace(full_checkpoint(40), run_id=LATER_RUN)
    store.commit(last, records_of_every_kind())
    store.post([answer("k2"), redo("k3")])


def forgetting(contents: Contents) -> Contents:
    """The same, with one run more that ended, whose records are no longer kept."""
    return replace(contents, ended=[*contents.ended, FiledRun(summary(PRUNED_RUN, status="abandoned"), None)])


def loaded(store: Store) -> MemoryStore:
    """A store in memory with a whole job, as another store would hand it over."""
    other = MemoryStore()
    fill(other)
    store.load()
    return other


def if_jobs_move(test: Callable[[Any, Launches], None]) -> Callable[[Any, Launches], None]:
    """For stores that have these methods."""

    @wraps(test)
    def run(self: Any, launches: Launches) -> None:
        if type(launches.next()).adopt is not Store.adopt:
            test(self, launches)

    return run


class MoveContract(OnOneStore):
    """Stores without these methods refuse, and say so."""

    def test_a_store_that_cannot_move_jobs_says_so(self, launches: Launches) -> None:
        store = launches.next()
        if type(store).adopt is Store.adopt:
            with pytest.raises(UsageError):
                store.contents()
            with pytest.raises(UsageError):
                store.adopt(Contents())

    @if_jobs_move
    def test_a_job_goes_from_store_to_store_whole(self, launches: Launches) -> None:
        store = launches.next()
        fill(store)
        store = launches.next()
        here = Moved(store)
        assert here.checkpoint is not None and here.checkpoint == bare_checkpoint(here.checkpoint)
        assert here.sides == SIDES and len(here.messages) == 2
        there = MemoryStore()
        there.adopt(store.contents())
        assert Moved(there) == here
        assert Moved(launches.next()) == here, "it is still where it was"

    @if_jobs_move
    def test_a_job_that_comes_in_is_resumed_like_any_other(self, launches: Launches) -> None:
        store = launches.next()
        other = loaded(store)
        expected = Moved(other)
        store.adopt(forgetting(other.contents()))
        store.load()
        expected.ended.append((summary(PRUNED_RUN, status="abandoned"), None))
        for _ in range(2):
            assert Moved(store) == expected
            with pytest.raises(CheckpointError):
                store.reader(run_id=PRUNED_RUN)
            with store.reader(run_id=RUN) as reader:
                assert [one.key for _, one in reader.records()] == ["a", "b", "c"]
            store = launches.next()
        with launches.look().reader() as reader:
            assert reader.run_id == LATER_RUN and len(reader.inbox()) == 2
            assert [encode_record(one) for _, one in reader.records()] == expected.lines
        before = keys(store)
        (ref,) = store.commit(checkpoint(41, run_id=LATER_RUN), [record("new")])
        assert [one.key for one in store.read([ref])] == ["new"]
        store.prune(keep=["items-1.spool"])
        assert keys(launches.next()) == [*before, "new"]
        store = launches.next()
        store.finish(summary(LATER_RUN))
        assert [one.run_id for one in store.summaries()] == [LATER_RUN, RUN, PRUNED_RUN]

    @if_jobs_move
    def test_what_was_posted_is_processed_where_the_job_is_now(self, launches: Launches) -> None:
        store = launches.next()
        store.adopt(loaded(store).contents())
        store.load()
        names = [one.name for one in store.inbox()]
        store.post([answer("later")])
        posted = [one.message.key for one in store.inbox() if one.message is not None]
        assert sorted(posted) == ["k2", "k3", "later"]
        assert store.claim(names) == set(names)
        store.drop(names)
        assert [one.message.key for one in launches.next().inbox() if one.message is not None] == ["later"]

    @if_jobs_move
    def test_a_job_without_an_unfinished_run_comes_in(self, launches: Launches) -> None:
        other = MemoryStore()
        end_run(other)
        store = launches.next()
        store.adopt(other.contents())
        assert store.load().checkpoint is None
        assert Moved(store) == Moved(other)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("b")])
        assert keys(launches.next()) == ["b"]

    @if_jobs_move
    def test_a_job_does_not_come_in_over_another(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        other = loaded(store)
        with pytest.raises(UsageError):
            store.adopt(other.contents())
        assert keys(store) == ["a"] == keys(launches.next())
        store = launches.next()
        store.finish(summary())
        with pytest.raises(UsageError):
            store.adopt(other.contents())
        assert [one.run_id for one in launches.next().summaries()] == [RUN]

    @if_jobs_move
    def test_a_job_takes_the_place_of_another_on_demand(self, launches: Launches) -> None:
        store = launches.next()
        store.keep("items-9.spool", [b"kept"])
        end_run(store, PRUNED_RUN)
        store.commit(checkpoint(1), [record("old")])
        store.post([answer("old")])
        store = launches.next()
        other = loaded(store)
        store.adopt(other.contents(), replace=True)
        store.load()
        for _ in range(2):
            found, expected = Moved(store), Moved(other)
            assert (found.checkpoint, found.lines, found.ended) == (expected.checkpoint, expected.lines, expected.ended)
            assert found.sides == {**SIDES, "items-9.spool": b"kept"}
            assert len(found.messages) == 3, "what was posted here is not lost"
            store = launches.next()
        # Also by one that has no unfinished run.
        done = MemoryStore()
        end_run(done)
        store.adopt(done.contents(), replace=True)
        assert store.load().checkpoint is None
        assert [one.run_id for one in store.summaries()] == [RUN]
        assert launches.next().load().checkpoint is None

    @if_jobs_move
    def test_a_job_can_be_written_anew_where_it_is(self, launches: Launches) -> None:
        store = launches.next()
        fill(store)
        before = Moved(store)
        large = [bytes([n]) * 1_000_000 for n in range(20)]
        store.keep("items-2.spool", iter(large))
        before.sides["items-2.spool"] = b"".join(large)
        for _ in range(2):
            store.adopt(store.contents(), replace=True)
            store.load()
            assert Moved(store) == before
            store = launches.next()
        store.commit(checkpoint(41, run_id=LATER_RUN), [record("new")])
        store.prune(keep=["items-1.spool", "items-2.spool", "0a.written"])
        assert Moved(launches.next()).lines[:-1] == before.lines

    @if_jobs_move
    def test_what_fails_halfway_changes_nothing(self, launches: Launches) -> None:
        def lines() -> Iterable[bytes]:
            yield encode_record(record("half"))
            raise CheckpointError("the rest is damaged")

        store = launches.next()
        with pytest.raises(CheckpointError):
            store.adopt(Contents(checkpoint=checkpoint(3), lines=lines))
        store = launches.next()
        assert store.load().checkpoint is None and store.summaries() == []
        store.commit(checkpoint(1), [record("a")])
        store = launches.next()
        with pytest.raises(CheckpointError):
            store.adopt(Contents(checkpoint=checkpoint(3), lines=lines), replace=True)
        store = launches.next()
        assert keys(store) == ["a"]
        store.commit(checkpoint(2))

    def test_a_side_file_is_forgotten(self, launches: Launches) -> None:
        store = launches.next()
        store.forget("moved.json")
        store.keep("moved.json", [b"{}"])
        store.forget("moved.json")
        for _ in range(2):
            assert not b"".join(store.fetch("moved.json") or ())
            store = launches.next()

    @if_jobs_move
    def test_the_fields_that_belong_to_the_store_stay_there(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("a")])
        found = store.contents()
        assert found.checkpoint is not None
        assert (found.checkpoint.outputs, found.checkpoint.journal.name) == ([], "")
        assert [one.summary for one in found.ended] == [bare_summary(one) for one in store.summaries()]

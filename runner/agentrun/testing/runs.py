"""The contract of a run's end: finish, summaries, a new run on the records of an old one, set_aside, clear, prune."""

from __future__ import annotations

import pytest
from msgspec import structs

from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.errors import CheckpointError
from agentrun.store.port import HistoryEvent
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, end_run, keys, record, summary
from agentrun.testing.launches import Launches, OnOneStore

RECORDS_KEPT = 3
"""Of how many ended runs a store keeps the records, at least."""


def without_place(one: Summary) -> Summary:
    """Where the records are filed is for the store to note."""
    return structs.replace(one, journal="", journal_length=0)


class RunContract(OnOneStore):
    def test_finish_files_a_summary_and_clears_the_state(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        output = WrittenOutput("out/triage.jsonl", 12, "0" * 64)
        filed = summary(total=1, counts={"done": 1}, output=output, ended_at="2026", versions={"v1": 1})
        store.finish(filed)
        for _ in range(2):
            assert [without_place(one) for one in store.summaries()] == [filed]
            store = launches.next()
            assert store.load().checkpoint is None and store.load().finished is None
            assert keys(store) == []
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("b")])
        assert keys(store) == ["b"]

    def test_the_next_run_may_begin_right_after_a_finish(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        store.finish(summary(status="abandoned"))
        with pytest.raises(CheckpointError):
            store.commit(checkpoint(2, run_id=LATER_RUN))
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("b")])
        assert keys(store) == ["b"] == keys(launches.next())

    def test_finishing_twice_files_one_summary(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        store.finish(summary())
        store.finish(summary())
        assert len(store.summaries()) == 1
        assert store.reopen(RUN) is not None and keys(store) == ["a"]

    def test_summaries_come_newest_first(self, launches: Launches) -> None:
        store = launches.next()
        for day in range(5):
            store.commit(checkpoint(1, run_id=f"2026050{day}T000000-0"))
            store.finish(summary(f"2026050{day}T000000-0", total=day))
        assert [one.total for one in store.summaries()] == [4, 3, 2, 1, 0]
        assert [one.total for one in launches.next().summaries()] == [4, 3, 2, 1, 0]

    # ---- reopening

    def test_a_reopened_run_begins_with_the_records_of_the_old_one(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        new = store.reopen(RUN)
        assert new is not None
        assert (new.job, new.seq, dict(new.counts), new.total) == ("triage", 3, {}, 0)
        assert new.run_id > RUN and new.started_at
        assert (new.context.launches, new.context.from_run) == (0, RUN)
        assert keys(store) == ["a", "b", "c"]
        assert [one.value for one in store.read([ref for ref, _ in store.scan()])] == [{"n": n} for n in (1, 2, 3)]
        with pytest.raises(CheckpointError):
            store.commit(checkpoint(1, run_id=new.run_id))
        new.seq += 1
        (ref,) = store.commit(new, [record("a", "again", gen=1)])
        assert [one.value for one in store.read([ref])] == ["again"]
        for _ in range(2):
            assert keys(store) == ["a", "b", "c", "a"]
            assert [one.seq for _, one in store.scan()] == [1, 2, 3, 4]
            store = launches.next()
            found = store.load().checkpoint
            assert found is not None and (found.run_id, found.seq) == (new.run_id, 4)

    def test_a_reopened_run_ends_as_any_other_and_can_be_reopened_again(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        new = store.reopen(RUN)
        assert new is not None
        new.seq += 1
        store.commit(new, [record("d")])
        store.prune()
        store.finish(summary(new.run_id))
        assert [one.run_id for one in store.summaries()] == [new.run_id, RUN]
        last = store.reopen(new.run_id)
        assert last is not None and (last.seq, last.context.from_run) == (4, new.run_id)
        assert keys(store) == ["a", "b", "c", "d"]
        store = launches.next()
        assert store.reopen(RUN) is not None and keys(store) == ["a", "b", "c"]

    def test_a_run_reopened_and_not_committed_leaves_nothing(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        assert store.reopen(RUN) is not None
        store = launches.next()
        assert store.load().checkpoint is None
        assert keys(store) == []
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("new")])
        store.prune()
        assert keys(store) == ["new"]

    @pytest.mark.parametrize("run_id", ["20200101T000000-00000000000", "../../etc", ""])
    def test_a_run_that_is_not_kept_is_not_reopened(self, launches: Launches, run_id: str) -> None:
        store = launches.next()
        end_run(store)
        assert store.reopen(run_id) is None
        store.commit(checkpoint(1, run_id=LATER_RUN))

    def test_over_an_unfinished_run_nothing_is_reopened(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("new")])
        with pytest.raises(CheckpointError):
            store.reopen(RUN)
        store = launches.next()
        assert keys(store) == ["new"]
        store.commit(checkpoint(2, run_id=LATER_RUN))

    def test_the_newest_runs_that_ended_can_be_reopened(self, launches: Launches) -> None:
        store = launches.next()
        runs = [f"2026050{n}T220311-0a2f19f3a1c" for n in range(1, 6)]
        for run_id in runs:
            end_run(store, run_id, names=run_id[7])
            store.prune()
        for run_id in runs[-RECORDS_KEPT:]:
            assert store.reopen(run_id) is not None
            assert keys(store) == [run_id[7]]
            store = launches.next()

    def test_an_empty_run_is_reopened_empty(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store, names="")
        new = store.reopen(RUN)
        assert new is not None and new.seq == 0
        new.seq += 1
        store.commit(new, [record("a")])
        assert keys(store) == ["a"] == keys(launches.next())

    # ---- out of the way

    def test_what_is_set_aside_is_no_longer_in_the_way(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        assert isinstance(store.set_aside(), str)
        assert store.load().checkpoint is None
        assert keys(store) == []
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("b")])
        assert keys(store) == ["b"] == keys(launches.next())

    def test_pruning_keeps_all_that_is_in_use(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        store.keep("items-1.spool", [b"kept"])
        store.keep("job.json", [b"{}"])
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("a")])
        store.prune(keep=["items-1.spool"])
        for _ in range(2):
            assert keys(store) == ["a"]
            assert [one.run_id for one in store.summaries()] == [RUN]
            assert [b"".join(store.fetch(name) or ()) for name in ("items-1.spool", "job.json")] == [b"kept", b"{}"]
            store = launches.next()

    def test_clear_removes_everything_and_the_job_can_run_again(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("a")])
        store.keep("job.json", [b"{", b"}"])
        store.note(HistoryEvent(event="launch"))
        store.clear()
        store = launches.next()
        assert store.summaries() == [] and store.load().checkpoint is None
        assert store.fetch("job.json") is None and store.reopen(RUN) is None
        with store.reader() as reader:
            assert (reader.run_id, list(reader.history())) == ("", [])
        end_run(store)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("a")])
        store.clear()
        # The same launch, too, begins with nothing.
        assert store.load().checkpoint is None
        store.commit(checkpoint(1), [record("b")])
        assert keys(store) == ["b"] == keys(launches.next())

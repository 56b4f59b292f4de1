"""The contract of a run's end: finish, summaries, a new run on the records of an old one, set_aside, clear, prune."""

from __future__ import annotations

import pytest
from msgspec import structs

from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.errors import CheckpointError
from agentrun.store.port import HistoryEvent, Store
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, end_run, keys, record, reopen, summary
from agentrun.testing.launches import Launches, OnOneStore

RECORDS_KEPT = 3
"""Of how many ended runs a store keeps the records, at least."""


def without_place(one: Summary) -> Summary:
    """Where the records are filed is for the store to note."""
    return structs.replace(one, journal="", journal_length=0)


def is_kept(store: Store, run_id: str) -> bool:
    """Whether the records of a run that ended can still be read."""
    try:
        store.reader(run_id=run_id).close()
    except CheckpointError:
        return False
    return True


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
        reopen(store)
        assert keys(store) == ["a"]

    def test_summaries_come_newest_first(self, launches: Launches) -> None:
        store = launches.next()
        for day in range(5):
            store.commit(checkpoint(1, run_id=f"2026050{day}T000000-0"))
            store.finish(summary(f"2026050{day}T000000-0", total=day))
        assert [one.total for one in store.summaries()] == [4, 3, 2, 1, 0]
        assert [one.total for one in launches.next().summaries()] == [4, 3, 2, 1, 0]

    def test_the_newest_run_is_the_one_with_the_highest_number_whatever_the_clock_said(
        self, launches: Launches
    ) -> None:
        store = launches.next()
        for number, run_id in enumerate([LATER_RUN, RUN], 1):
            store.commit(checkpoint(1, run_id=run_id), [record(run_id)])
            store.finish(summary(run_id, number=number))
        for _ in range(2):
            assert [one.run_id for one in store.summaries()] == [RUN, LATER_RUN]
            with launches.look().reader() as reader:
                assert (reader.run_id, [one.key for _, one in reader.records()]) == (RUN, [RUN])
            store = launches.next()

    # ---- reopening

    def test_a_reopened_run_begins_with_the_records_it_is_given(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        reopen(store)
        refs = [ref for ref, _ in store.scan()]
        assert keys(store) == ["a", "b", "c"]
        assert [one.value for one in store.read(refs)] == [{"n": n} for n in (1, 2, 3)]
        for seq in (1, 3, 5):
            with pytest.raises(CheckpointError):
                store.commit(checkpoint(seq, run_id=LATER_RUN))
        (ref,) = store.commit(checkpoint(4, run_id=LATER_RUN), [record("a", "again", gen=1)])
        assert [one.value for one in store.read([ref])] == ["again"]
        for _ in range(2):
            assert keys(store) == ["a", "b", "c", "a"]
            assert [one.seq for _, one in store.scan()] == [1, 2, 3, 4]
            store = launches.next()
            found = store.load().checkpoint
            assert found is not None and (found.run_id, found.seq) == (LATER_RUN, 4)

    def test_of_the_records_only_those_that_are_given_come_along(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        with launches.look().reader(run_id=RUN) as reader:
            some = [structs.replace(one, index=7) for _, one in reader.records() if one.key != "c"]
        # The highest number counts, also if its record stays behind.
        refs = list(store.reopen(some, seq=3))
        assert [ref for ref, _ in store.scan()] == refs
        store.commit(checkpoint(4, run_id=LATER_RUN))
        for _ in range(2):
            assert [(one.key, one.seq, one.index) for _, one in store.scan()] == [("a", 1, 7), ("b", 2, 7)]
            store = launches.next()
            store.load()

    def test_a_reopened_run_ends_as_any_other_and_can_be_reopened_again(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        reopen(store)
        store.commit(checkpoint(4, run_id=LATER_RUN), [record("d")])
        store.prune()
        store.finish(summary(LATER_RUN))
        assert [one.run_id for one in store.summaries()] == [LATER_RUN, RUN]
        reopen(store, LATER_RUN)
        assert keys(store) == ["a", "b", "c", "d"]
        store = launches.next()
        reopen(store)
        assert keys(store) == ["a", "b", "c"]

    def test_a_run_reopened_and_not_committed_leaves_nothing(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        reopen(store)
        store = launches.next()
        assert store.load().checkpoint is None
        assert keys(store) == []
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("new")])
        store.prune()
        assert keys(store) == ["new"]

    @pytest.mark.parametrize("run_id", ["20200101T000000-00000000000", "../../etc"])
    def test_a_run_that_is_not_kept_is_not_shown(self, launches: Launches, run_id: str) -> None:
        store = launches.next()
        end_run(store)
        with pytest.raises(CheckpointError):
            store.reader(run_id=run_id)
        store.commit(checkpoint(1, run_id=LATER_RUN))

    def test_over_an_unfinished_run_nothing_is_reopened(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("new")])
        with pytest.raises(CheckpointError):
            reopen(store)
        store = launches.next()
        assert keys(store) == ["new"]
        store.commit(checkpoint(2, run_id=LATER_RUN))

    def test_of_the_newest_runs_that_ended_the_records_are_kept(self, launches: Launches) -> None:
        store = launches.next()
        runs = [f"2026050{n}T220311-0a2f19f3a1c" for n in range(1, 6)]
        for run_id in runs:
            end_run(store, run_id, names=run_id[7])
            store.prune()
        for run_id in runs[-RECORDS_KEPT:]:
            reopen(store, run_id)
            assert keys(store) == [run_id[7]]
            store = launches.next()

    def test_the_last_completed_run_keeps_its_records_and_items_however_many_were_abandoned_since(
        self, launches: Launches
    ) -> None:
        store = launches.next()
        store.keep("items-1.spool", [b"kept"])
        store.commit(checkpoint(1), [record("a")])
        store.finish(summary(number=1, spool="items-1.spool"))
        for number in range(2, 26):
            run_id = f"202606{number:02}T220311-0a2f19f3a1c"
            store.commit(checkpoint(1, run_id=run_id))
            store.finish(summary(run_id, number=number, status="abandoned"))
            store.prune()
        store = launches.next()
        assert b"".join(store.fetch("items-1.spool") or ()) == b"kept"
        assert RUN in [one.run_id for one in store.summaries()]
        assert is_kept(store, RUN)
        reopen(store)
        assert keys(store) == ["a"]

    def test_lists_of_written_files_stay_as_long_as_a_summary_names_them(self, launches: Launches) -> None:
        store = launches.next()
        for name in ("1.written", "2.written"):
            store.keep(name, [b"kept"])
        store.commit(checkpoint(1), [record("a")])
        store.finish(summary(number=1, output=WrittenOutput("out", 1, "0", "folder", "{key}.md", "1.written")))
        store.prune(keep=["2.written"])
        store = launches.next()
        assert [b"".join(store.fetch(name) or ()) for name in ("1.written", "2.written")] == [b"kept", b"kept"]

    def test_an_empty_run_is_reopened_empty(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store, names="")
        assert reopen(store).seq == 0 and keys(store) == []
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("a")])
        assert keys(store) == ["a"] == keys(launches.next())

    # ---- out of the way

    def test_what_is_set_aside_is_no_longer_in_the_way_and_a_store_that_cannot_keep_it_refuses(
        self, launches: Launches
    ) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        try:
            assert isinstance(store.set_aside(), str)
        except CheckpointError:
            assert keys(store) == ["a"] == keys(launches.next())
            return
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
        assert store.fetch("job.json") is None
        with store.reader() as reader:
            assert (reader.run_id, list(reader.history())) == ("", [])
        end_run(store)
        store.commit(checkpoint(1, run_id=LATER_RUN), [record("a")])
        store.clear()
        # The same launch, too, begins with nothing.
        assert store.load().checkpoint is None
        store.commit(checkpoint(1), [record("b")])
        assert keys(store) == ["b"] == keys(launches.next())

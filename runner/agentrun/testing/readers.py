"""The contract of the reader: one job at one moment, whole, while a runner may be at work."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from agentrun.checkpoint.record import Record
from agentrun.store.port import Reader
from agentrun.testing.examples import (
    LATER_RUN,
    RUN,
    checkpoint,
    end_run,
    full_checkpoint,
    record,
    records_of_every_kind,
    summary,
)
from agentrun.testing.launches import Launches, OnOneStore

NEEDLES = (
    "",
    "k1",
    "é",
    "\u2028",
    "quoted",
    '"',
    "\\",
    "\n",
    "no such",
    "done",
    "search",
    "x" * 41,
    "0",
    "a\nb",
    "crc",
)


def shown(reader: Reader) -> Sequence[tuple[int, Record]]:
    """The records, asked for in the two ways that there are."""
    found = list(reader.records())
    assert list(reader.read([ref for ref, _ in found[::-1]])) == [one for _, one in found[::-1]]
    assert list(reader.scan()) == found
    return found


class ReaderContract(OnOneStore):
    def test_of_a_job_that_never_ran_there_is_nothing_to_read(self, launches: Launches) -> None:
        for _ in range(2):
            with launches.look().reader() as reader:
                assert (reader.checkpoint, reader.summary, list(reader.summaries)) == (None, None, [])
                assert (shown(reader), list(reader.search("a"))) == ([], [])
                assert (reader.run_id, reader.inbox(), list(reader.history())) == ("", [], [])
            launches.next()

    def test_an_unfinished_run_is_read_as_its_runner_reads_it(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(full_checkpoint(1), records_of_every_kind())
        store.commit(full_checkpoint(2), [record("last")])
        for _ in range(2):
            with launches.look().reader() as reader:
                assert (reader.run_id, reader.summary, list(reader.summaries)) == (RUN, None, [])
                assert reader.checkpoint == store.load().checkpoint
                assert shown(reader) == list(store.scan())
            launches.end()

    def test_a_run_that_ended_is_read_with_its_records(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), records_of_every_kind())
        store.commit(checkpoint(2), [record("last")])
        expected = list(store.scan())
        store.finish(summary(total=9))
        for _ in range(2):
            with launches.look().reader() as reader:
                assert (reader.run_id, reader.checkpoint) == (RUN, None)
                assert reader.summary is not None and (reader.summary.run_id, reader.summary.total) == (RUN, 9)
                assert list(reader.summaries) == [reader.summary]
                assert shown(reader) == expected
            store.prune()
            launches.end()

    def test_the_newest_of_the_runs_that_ended_is_shown_and_an_unfinished_one_before_it(
        self, launches: Launches
    ) -> None:
        store = launches.next()
        end_run(store, RUN, "abc")
        end_run(store, LATER_RUN, "xy")
        with launches.look().reader() as reader:
            assert (reader.run_id, [one.key for _, one in shown(reader)]) == (LATER_RUN, ["x", "y"])
            assert [one.run_id for one in reader.summaries] == [LATER_RUN, RUN]
        newest = "20260506T220311-0a2f19f3a1c"
        store.commit(checkpoint(1, run_id=newest), [record("new")])
        with launches.look().reader() as reader:
            assert (reader.run_id, reader.summary) == (newest, None)
            assert [one.key for _, one in shown(reader)] == ["new"]
            assert [one.run_id for one in reader.summaries] == [LATER_RUN, RUN]

    def test_a_run_that_is_reopened_is_shown_from_its_first_commit_on(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        with launches.look().reader(run_id=RUN) as reader:
            assert (reader.run_id, reader.checkpoint) == (RUN, None)
            store.reopen([one for _, one in reader.records()], seq=3)
        with launches.look().reader() as reader:
            assert (reader.run_id, [one.key for _, one in shown(reader)]) == (RUN, ["a", "b", "c"])
        store.commit(checkpoint(4, run_id=LATER_RUN), [record("d")])
        with launches.look().reader() as reader:
            assert (reader.run_id, [one.key for _, one in shown(reader)]) == (LATER_RUN, ["a", "b", "c", "d"])
        with launches.look().reader(run_id=RUN) as reader:
            assert (reader.run_id, [one.key for _, one in shown(reader)]) == (RUN, ["a", "b", "c"])

    def test_records_are_given_from_a_ref_on(self, launches: Launches) -> None:
        store = launches.next()
        for seq in range(1, 30):
            store.commit(checkpoint(seq), [record(f"k{seq}", "y" * seq)])
        found = list(store.scan())
        for _ in range(2):
            with launches.look().reader() as reader:
                for at, (ref, _one) in enumerate(found):
                    assert list(reader.records(since=ref)) == found[at:]
                    # A ref is a number like any other: "everything after this one" is one more.
                    assert list(reader.records(since=ref + 1)) == found[at + 1 :]
                assert list(reader.records(since=0)) == found
                assert list(reader.records(since=found[-1][0] + 10**9)) == []
            if store.load().checkpoint is not None:
                store.finish(summary())

    @pytest.mark.parametrize("is_ended", [False, True])
    def test_a_search_finds_what_its_default_body_finds(self, launches: Launches, is_ended: bool) -> None:
        store = launches.next()
        store.commit(checkpoint(1), records_of_every_kind())
        for seq in range(2, 9):
            store.commit(checkpoint(seq), [record(f"k{seq}", {"n": seq, "é": "x" * seq})])
        if is_ended:
            store.finish(summary())
        with launches.look().reader() as reader:
            for needle in NEEDLES:
                assert list(reader.search(needle)) == list(Reader.search(reader, needle)), needle
                found = list(reader.search(needle.swapcase(), any_case=True))
                assert found == list(Reader.search(reader, needle.swapcase(), any_case=True)), needle
            assert [one.key for _, one in reader.search("k7")] == ["k7"]
            assert [one.key for _, one in reader.search("quoted")] == ['a "quoted"\nkey\\']
            assert list(reader.search("nobody wrote this")) == []
            assert (list(reader.search("K7")), len(list(reader.search("K7", any_case=True)))) == ([], 1)

    def test_a_commit_that_has_only_begun_is_not_read(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1, total=1), [record("a")])
        sync = store.begin(checkpoint(2, total=2), [record("b" * 20_000), record("c")])
        before = launches.look().reader()
        sync()
        with before, launches.look().reader() as after:
            assert before.checkpoint is not None and (before.checkpoint.seq, before.checkpoint.total) == (1, 1)
            assert [one.key for _, one in shown(before)] == ["a"]
            assert after.checkpoint is not None and (after.checkpoint.seq, after.checkpoint.total) == (2, 2)
            assert [one.key[:1] for _, one in shown(after)] == ["a", "b", "c"]

    def test_what_a_runner_does_later_does_not_change_what_a_reader_shows(self, launches: Launches) -> None:
        store = launches.next()
        for seq in range(1, 9):
            store.commit(checkpoint(seq, total=seq), [record(f"k{seq}")])
        expected = list(store.scan())
        with launches.look().reader() as reader:

            def check() -> None:
                assert reader.checkpoint is not None and reader.checkpoint.seq == 8
                assert (reader.run_id, reader.summary, list(reader.summaries)) == (RUN, None, [])
                assert shown(reader) == expected
                assert [one.key for _, one in reader.search("k3")] == ["k3"]

            check()
            for seq in range(9, 40):
                store.commit(checkpoint(seq), [record(f"k{seq}")])
            check()
            store.compact(checkpoint(40), [ref for ref, _ in list(store.scan())[20:]])
            check()
            store.commit(checkpoint(41), [record("after")])
            store.finish(summary())
            store.prune()
            check()
            end_run(store, LATER_RUN)
            check()

    def test_a_reader_of_a_run_that_ended_is_not_changed_by_the_next_one(self, launches: Launches) -> None:
        store = launches.next()
        end_run(store)
        with launches.look().reader() as reader:
            for day in range(6, 9):
                end_run(store, f"2026050{day}T220311-0a2f19f3a1c", "xyz")
                store.prune()
            assert reader.run_id == RUN
            assert [one.key for _, one in shown(reader)] == ["a", "b", "c"]

    def test_a_reader_holds_a_copy(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        with launches.look().reader() as reader:
            assert reader.checkpoint is not None
            reader.checkpoint.context.deaths["a"] = 3
            reader.checkpoint.total = 99
        found = store.load().checkpoint
        assert found is not None and (found.total, found.context.deaths) == (0, {})

    def test_a_reader_may_be_closed_twice(self, launches: Launches) -> None:
        store = launches.next()
        store.commit(checkpoint(1), [record("a")])
        with launches.look().reader() as reader:
            reader.close()
        reader.close()

    def test_while_a_runner_is_at_work_readers_see_whole_states_only(self, launches: Launches, tmp_path: Path) -> None:
        """Each commit adds two records, and says in `total` how many there are."""
        is_over, is_reading = Event(), Event()

        def look_again_and_again() -> set[int]:
            store, seen = self.make_store(tmp_path), set()
            while not is_over.is_set():
                with store.reader() as reader:
                    found = reader.checkpoint or reader.summary
                    assert len(list(reader.records())) == (found.total if found is not None else 0)
                    seen.add(found.total if found is not None else 0)
                is_reading.set()
            return seen

        with ThreadPoolExecutor(1) as threads:
            looking = threads.submit(look_again_and_again)
            try:
                assert is_reading.wait(60)
                store = launches.next()
                for seq in range(1, 80):
                    if seq % 20 == 0:
                        refs = [ref for ref, _ in store.scan()]
                        store.compact(checkpoint(seq, total=len(refs)), refs)
                    else:
                        total = 2 * (seq - seq // 20)
                        store.commit(checkpoint(seq, total=total), [record(f"a{seq}"), record(f"b{seq}")])
                    if looking.done():
                        break
                store.finish(summary(total=2 * (79 - 3)))
                is_reading.clear()
                assert looking.done() or is_reading.wait(60)
            finally:
                is_over.set()
            assert len(looking.result(timeout=60)) > 1

"""The contract of a home, of its runs: commits that are conditional, records that never change, runs that end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentrun.errors import LostError
from agentrun.store.keyed.home import Commit, Home
from agentrun.testing.examples import LATER_RUN, RUN
from agentrun.testing.homes import (
    JOURNAL,
    LONG,
    NOBODYS,
    OTHER_JOURNAL,
    SHORT,
    OnOneHome,
    all_of,
    commit,
    ended_run,
    fill,
    lease_of,
    lines,
    state,
    stored,
    text_of,
)

FENCED: dict[str, Callable[[Home, int], None]] = {
    "commit": lambda home, epoch: home.commit(
        epoch, commit(2, first_ref=1, adds="z", run_id=LATER_RUN, journal=OTHER_JOURNAL), LONG
    ),
    "finish": lambda home, epoch: home.finish(epoch, ended_run(LATER_RUN, OTHER_JOURNAL)),
    "replace": lambda home, epoch: home.replace(epoch, None, []),
    "forget a run": lambda home, epoch: home.forget(epoch, runs=[RUN]),
    "forget a journal": lambda home, epoch: home.forget(epoch, journals=[JOURNAL]),
    "clear": lambda home, epoch: home.clear(epoch),
    "put": lambda home, epoch: home.put("side/job.json", [b"late"], epoch=epoch),
    "put what is new": lambda home, epoch: home.put("side/late.json", [b"late"], epoch=epoch),
    "drop": lambda home, epoch: home.drop(["side/job.json"], epoch=epoch),
}
"""What only the holder of the lease can do, each to a job that `fill` made."""


class HomeRunContract(OnOneHome):
    @pytest.mark.parametrize("what", FENCED)
    def test_only_who_has_the_lease_can_change_the_job(self, home: Home, other: Home, what: str) -> None:
        epoch = fill(home)
        newer = other.take(other.head(), b"second", LONG)
        before = all_of(other)
        for wrong in (epoch, NOBODYS):
            with pytest.raises(LostError):
                FENCED[what](home, wrong)
            assert all_of(other) == before
        assert lease_of(home) == (newer, b"second", True)
        FENCED[what](other, newer)
        assert all_of(home) != before

    # ---- commits

    def test_a_commit_replaces_the_state_and_adds_its_records(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1), LONG)
        home.commit(epoch, commit(2, adds="ab"), LONG)
        home.commit(epoch, commit(3, first_ref=2, adds="c"), LONG)
        home.commit(epoch, commit(4, first_ref=3), LONG)
        for look in (home, other):
            assert (look.head().seq, look.head().state) == (4, state(4))
            assert stored(look) == list(enumerate(lines("a", "b", "c")))
            assert look.journals() == {JOURNAL}

    def test_a_commit_renews_the_lease(self, home: Home, other: Home) -> None:
        home.take(home.head(), b"first", SHORT)
        home.commit(1, commit(1, adds="a"), LONG)
        self.let_pass()
        assert lease_of(other, exact=True) == (1, b"first", True)

    @pytest.mark.parametrize("seq", [0, 1, 2, 4, 5])
    def test_a_commit_that_does_not_follow_the_stored_one_is_refused_and_changes_nothing(
        self, home: Home, other: Home, seq: int
    ) -> None:
        """Also one that comes late and was sent again meanwhile."""
        epoch = home.take(home.head(), b"first", LONG)
        for number in (1, 2):
            home.commit(epoch, commit(number, first_ref=number - 1, adds="ab"[number - 1]), LONG)
        before = all_of(other)
        with pytest.raises(LostError):
            home.commit(epoch, replace(commit(seq, first_ref=2, adds="z"), is_first=False), LONG)
        assert all_of(other) == before
        home.commit(epoch, commit(3, first_ref=2, adds="c"), LONG)
        assert stored(other) == list(enumerate(lines("a", "b", "c")))

    def test_the_first_commit_of_a_run_needs_a_job_without_a_state_and_any_other_one_with_it(
        self, home: Home, other: Home
    ) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        for seq in (1, 2):
            with pytest.raises(LostError):
                home.commit(epoch, replace(commit(seq, adds="z"), is_first=False), LONG)
        assert (home.head().state, home.journals()) == (None, set())
        home.commit(epoch, commit(1, adds="a"), LONG)
        before = all_of(other)
        for seq in (1, 2):
            late = commit(seq, run_id=LATER_RUN, journal=OTHER_JOURNAL, adds="z")
            with pytest.raises(LostError):
                home.commit(epoch, replace(late, is_first=True), LONG)
        assert all_of(other) == before

    def test_the_first_commit_of_a_run_may_have_any_seq(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, replace(commit(7, adds="a"), is_first=True), LONG)
        home.commit(epoch, commit(8, first_ref=1, adds="b"), LONG)
        assert (other.head().seq, stored(other)) == (8, list(enumerate(lines("a", "b"))))

    @pytest.mark.parametrize("adds", ["", "a"])
    def test_a_first_commit_that_comes_again_when_its_run_has_ended_is_refused(
        self, home: Home, other: Home, adds: str
    ) -> None:
        """It was sent twice, because the answer was lost, and the network held one of them back."""
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, adds=adds), LONG)
        home.finish(epoch, ended_run())
        before = all_of(other)
        with pytest.raises(LostError):
            home.commit(epoch, commit(1, adds=adds), LONG)
        assert all_of(other) == before

    def test_large_commits_and_those_with_many_records_are_whole(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        large = [b"%d" % n * size for n, size in enumerate((300_000, 1, 1_500_000, 70_000))]
        many = [b'{"n":%d}' % n for n in range(3000)]
        home.commit(epoch, replace(commit(1), lines=large), LONG)
        home.commit(epoch, replace(commit(2, first_ref=4), lines=many), LONG)
        home.commit(epoch, replace(commit(3, first_ref=3004), state=b"x" * 2_000_000), LONG)
        assert [line for _, line in stored(other)] == large + many
        assert [ref for ref, _ in stored(other)] == list(range(3004))
        assert other.head().state == b"x" * 2_000_000
        assert other.size(JOURNAL) == sum(len(line) + 1 for line in large + many)

    # ---- records

    def test_records_are_read_by_range_and_by_ref(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        names = [f"k{n}" for n in range(60)]
        for seq in range(1, 21):
            some = lines(*names[3 * seq - 3 : 3 * seq])
            home.commit(epoch, replace(commit(seq, first_ref=3 * seq - 3), lines=some), LONG)
        expected = list(enumerate(lines(*names)))
        for look in (home, other):
            for first, end in ((0, 60), (1, 60), (7, 22), (59, 60), (5, 5), (60, 90), (58, 1 << 40)):
                assert list(look.scan(JOURNAL, first, end)) == expected[first:end], (first, end)
            refs = [59, 0, 7, 7, 33, 60, 1]
            assert look.read(JOURNAL, refs) == [dict(expected).get(ref) for ref in refs]
            assert look.read(JOURNAL, []) == []
            assert look.read(OTHER_JOURNAL, [0]) == [None] and stored(look, OTHER_JOURNAL) == []
            assert (look.size(JOURNAL), look.size(OTHER_JOURNAL)) == (sum(len(line) + 1 for _, line in expected), 0)

    def test_a_record_and_a_state_may_be_of_any_bytes(self, home: Home, other: Home) -> None:
        """They may be sealed."""
        epoch = home.take(home.head(), b"first", LONG)
        some = [bytes(range(256)), b"\n", b"a\nb\n\n", b"\0", b"\xff\xfe"]
        home.stage(JOURNAL, 0, some)
        for seq in (1, 2):
            sealed = replace(commit(seq, first_ref=len(some) * seq), lines=some, state=bytes(range(256)) * seq)
            home.commit(epoch, sealed, LONG)
        assert [line for _, line in stored(other)] == some * 3 == other.read(JOURNAL, range(len(some) * 3))
        assert other.head().state == bytes(range(256)) * 2
        assert other.size(JOURNAL) == 3 * sum(len(line) + 1 for line in some)

    def test_what_is_staged_is_there_once_however_often_it_is_staged(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.stage(JOURNAL, 0, lines("a", "b"))
        home.stage(JOURNAL, 2, lines("c"))
        home.stage(JOURNAL, 0, lines("a", "b"))
        home.stage(JOURNAL, 2, lines("c"))
        assert (other.journals(), other.head().state) == ({JOURNAL}, None)
        assert stored(other) == list(enumerate(lines("a", "b", "c")))
        home.commit(epoch, commit(1, first_ref=3, adds="d"), LONG)
        assert stored(other) == list(enumerate(lines("a", "b", "c", "d")))
        assert other.size(JOURNAL) == sum(len(line) + 1 for line in lines("a", "b", "c", "d"))

    def test_a_commit_may_name_another_journal_than_the_one_before(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, adds="abc"), LONG)
        home.stage(OTHER_JOURNAL, 0, lines("a", "c"))
        home.commit(epoch, commit(2, first_ref=2, journal=OTHER_JOURNAL), LONG)
        home.commit(epoch, commit(3, first_ref=2, journal=OTHER_JOURNAL, adds="d"), LONG)
        assert stored(other, OTHER_JOURNAL) == list(enumerate(lines("a", "c", "d")))
        assert stored(other) == list(enumerate(lines("a", "b", "c"))), "those who read it may still be at it"
        home.forget(epoch, journals=[JOURNAL])
        assert (other.journals(), stored(other)) == ({OTHER_JOURNAL}, [])

    # ---- the end

    def test_finishing_files_the_run_and_clears_the_state(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, adds="ab"), LONG)
        home.finish(epoch, ended_run())
        for look in (home, other):
            assert (look.head().seq, look.head().state) == (0, None)
            assert look.ended() == [ended_run()]
            assert stored(look) == list(enumerate(lines("a", "b")))
            assert lease_of(look) == (epoch, b"first", True)
        home.commit(epoch, commit(1, run_id=LATER_RUN, journal=OTHER_JOURNAL, adds="x"), LONG)
        assert (other.head().state, other.journals()) == (state(1, LATER_RUN), {JOURNAL, OTHER_JOURNAL})

    def test_a_run_that_is_filed_stays_as_it_was(self, home: Home, other: Home) -> None:
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, adds="a"), LONG)
        for summary in (b"first", b"second"):
            home.finish(epoch, ended_run(summary=summary))
            assert (other.ended(), other.head().state) == ([ended_run(summary=b"first")], None)

    def test_finishing_a_run_again_leaves_the_state_of_the_next_one_alone(self, home: Home, other: Home) -> None:
        """It was sent twice, because the answer was lost, and the network held one of them back."""
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, adds="a"), LONG)
        home.finish(epoch, ended_run())
        home.commit(epoch, commit(1, run_id=LATER_RUN, journal=OTHER_JOURNAL, adds="x"), LONG)
        before = all_of(other)
        home.finish(epoch, ended_run())
        assert all_of(other) == before

    def test_everything_of_the_runs_is_replaced_in_one_step(self, home: Home, other: Home) -> None:
        epoch = fill(home)
        home.stage("00000003-2c4d37b5", 0, lines("new"))
        new: Commit = replace(commit(9, first_ref=1, journal="00000003-2c4d37b5"), is_first=False)
        filed = [ended_run("20260101T000000-0", "00000003-2c4d37b5", b"a"), ended_run("20260102T000000-0", "", b"b")]
        home.replace(epoch, new, filed)
        assert (other.head().seq, other.head().state) == (9, state(9))
        assert sorted(other.ended(), key=lambda one: one.run_id) == filed
        assert text_of(other, "side/job.json") == b"{}" and lease_of(other)[::2] == (epoch, True)
        home.commit(epoch, commit(10, first_ref=1, journal="00000003-2c4d37b5", adds="z"), LONG)
        assert stored(other, "00000003-2c4d37b5") == list(enumerate(lines("new", "z")))
        home.replace(epoch, None, [])
        assert (other.head().seq, other.head().state, other.ended()) == (0, None, [])

    def test_what_is_forgotten_is_gone_and_nothing_else(self, home: Home, other: Home) -> None:
        epoch = fill(home)
        home.forget(epoch, runs=["20200101T000000-0"], journals=["00000000-00000000"])
        home.forget(epoch)
        assert (other.ended(), other.journals()) == ([ended_run()], {JOURNAL, OTHER_JOURNAL})
        home.forget(epoch, journals=[JOURNAL])
        assert (other.ended(), other.journals(), stored(other)) == ([ended_run()], {OTHER_JOURNAL}, [])
        home.forget(epoch, runs=[RUN])
        assert (other.ended(), other.head().state) == ([], state(1, LATER_RUN))
        assert stored(other, OTHER_JOURNAL) == list(enumerate(lines("x")))

    def test_clear_leaves_the_lease_and_nothing_else(self, home: Home, other: Home) -> None:
        epoch = fill(home)
        home.clear(epoch)
        assert all_of(other) == {"head": (0, None), "ended": [], "records": {}, "sides": {}}
        assert lease_of(other) == (epoch, b'{"pid":1}', True)
        home.commit(epoch, commit(1, adds="a"), LONG)
        assert stored(other) == list(enumerate(lines("a")))

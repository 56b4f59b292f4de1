"""The contract of a place: many jobs, which have nothing to do with one another."""

from __future__ import annotations

from pathlib import Path

from agentrun.store.keyed.home import Place
from agentrun.testing.examples import LATER_RUN, RUN
from agentrun.testing.homes import JOURNAL, LONG, all_of, commit, ended_run, fill, lease_of

JOBS = ["a", "a%", "a_b", "ab", 'night {x} "é\\', "triage", "triage-2"]


class PlaceContract:
    """What every place does. Subclass it and implement `make_place`."""

    def make_place(self, tmp_path: Path) -> Place:
        """Open the place under test: the same one at each call within a test, and empty at first."""
        raise NotImplementedError("say how to open the place: def make_place(self, tmp_path): ...")

    def test_a_job_is_known_once_it_has_a_state_a_run_that_ended_or_a_side_file(self, tmp_path: Path) -> None:
        place, other = self.make_place(tmp_path), self.make_place(tmp_path)
        assert other.names() == []
        for job in ("unfinished", "ended", "taken"):
            home = place.home(job)
            epoch = home.take(home.head(), b"first", LONG)
            if job != "taken":
                home.commit(epoch, commit(1), LONG)
            if job == "ended":
                home.finish(epoch, ended_run())
        place.home("posted").put("post/a", [b"x"])
        assert other.names() == ["ended", "posted", "unfinished"]
        home.clear(epoch)
        assert other.names() == ["ended", "posted", "unfinished"]

    def test_looking_at_a_job_does_not_make_it_known(self, tmp_path: Path) -> None:
        place = self.make_place(tmp_path)
        home = place.home("triage")
        assert lease_of(home, exact=True) == (0, None, False)
        assert all_of(home) == {"head": (0, None), "ended": [], "records": {}, "sides": {}}
        assert (place.find(RUN), place.names()) == (None, [])
        assert self.make_place(tmp_path).names() == []

    def test_jobs_have_nothing_to_do_with_one_another_whatever_they_are_called(self, tmp_path: Path) -> None:
        place, other = self.make_place(tmp_path), self.make_place(tmp_path)
        epochs = {job: fill(place.home(job)) for job in JOBS}
        assert other.names() == JOBS
        before = {job: all_of(other.home(job)) for job in JOBS}
        assert len({str(found) for found in before.values()}) == 1
        for cleared in JOBS[::2]:
            place.home(cleared).clear(epochs[cleared])
            place.home(cleared).give(epochs[cleared])
        assert other.names() == JOBS[1::2]
        assert all(all_of(other.home(job)) == before[job] for job in JOBS[1::2])
        assert [lease_of(other.home(job))[2] for job in JOBS] == [job in JOBS[1::2] for job in JOBS]

    def test_a_run_is_found_by_its_id_unfinished_or_ended(self, tmp_path: Path) -> None:
        place, other = self.make_place(tmp_path), self.make_place(tmp_path)
        fill(place.home("triage"))
        home = place.home("night")
        epoch = home.take(home.head(), b"first", LONG)
        home.commit(epoch, commit(1, run_id="20260101T000000-0", journal=JOURNAL), LONG)
        for run_id, job in ((RUN, "triage"), (LATER_RUN, "triage"), ("20260101T000000-0", "night"), ("x", None)):
            assert other.find(run_id) == job
        assert other.find("") is None

    def test_a_place_that_was_closed_opens_again_by_itself(self, tmp_path: Path) -> None:
        place = self.make_place(tmp_path)
        home = place.home("triage")
        epoch = fill(home)
        for _ in range(2):
            place.close()
        assert (place.names(), home.head().epoch) == (["triage"], epoch)
        home.beat(epoch, LONG)

"""The contract of a catalogue: which jobs there are, and which one has a run."""

from __future__ import annotations

from pathlib import Path

from agentrun.job.fields import KEPT_LABEL, Layer
from agentrun.store.port import Catalogue
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, context, end_run, record
from agentrun.testing.launches import Launches


class CatalogueContract:
    """What every catalogue does. Subclass it and implement `make_catalogue`."""

    def make_catalogue(self, tmp_path: Path) -> Catalogue:
        """Open the place under test: the same one at each call within a test, and empty at first."""
        raise NotImplementedError("say how to open the place: def make_catalogue(self, tmp_path): ...")

    def begin(self, tmp_path: Path, name: str, run_id: str, *, is_ended: bool = False) -> None:
        """A launch of the job that commits, and perhaps ends, a run."""
        launches = Launches(lambda: self.make_catalogue(tmp_path).store(name))
        store = launches.next()
        if is_ended:
            end_run(store, run_id)
        else:
            kept = {"run": {"retries": 0}}
            store.commit(checkpoint(1, run_id=run_id, context=context(kept=kept)), [record("a")])
        launches.end()

    def test_there_are_no_jobs_at_first_and_looking_makes_none(self, tmp_path: Path) -> None:
        catalogue = self.make_catalogue(tmp_path)
        assert catalogue.names() == [] and catalogue.find(RUN) is None
        with catalogue.store("triage").reader() as reader:
            assert reader.run_id == ""
        assert (catalogue.job_json("triage"), catalogue.kept_flags("triage")) == (None, None)
        assert catalogue.names() == [] == self.make_catalogue(tmp_path).names()

    def test_jobs_are_named_in_order_and_kept_apart(self, tmp_path: Path) -> None:
        self.begin(tmp_path, "triage", RUN)
        self.begin(tmp_path, "archive", LATER_RUN, is_ended=True)
        catalogue = self.make_catalogue(tmp_path)
        assert catalogue.names() == ["archive", "triage"]
        for name, run_id in (("triage", RUN), ("archive", LATER_RUN)):
            with catalogue.store(name).reader() as reader:
                assert (reader.name, reader.run_id) == (name, run_id)

    def test_a_run_is_found_by_its_id(self, tmp_path: Path) -> None:
        oldest = "20260501T220311-0a2f19f3a1c"
        self.begin(tmp_path, "archive", oldest, is_ended=True)
        self.begin(tmp_path, "archive", RUN, is_ended=True)
        self.begin(tmp_path, "triage", LATER_RUN)
        asked = Launches(lambda: self.make_catalogue(tmp_path).store("a-job-that-never-ran"))
        asked.next().keep("job.json", [b"{}"])
        asked.end()
        catalogue = self.make_catalogue(tmp_path)
        assert [catalogue.find(run_id) for run_id in (oldest, RUN, LATER_RUN)] == ["archive", "archive", "triage"]
        assert catalogue.find("20200101T000000-00000000000") is None and catalogue.find("") is None

    def test_what_was_asked_is_kept_with_the_job(self, tmp_path: Path) -> None:
        launches = Launches(lambda: self.make_catalogue(tmp_path).store("triage"))
        launches.next().keep("job.json", [b'{"version"', b":1}"])
        launches.end()
        catalogue = self.make_catalogue(tmp_path)
        assert catalogue.names() == ["triage"]
        assert catalogue.job_json("triage") == b'{"version":1}'
        assert catalogue.kept_flags("triage") is None
        self.begin(tmp_path, "triage", RUN)
        assert self.make_catalogue(tmp_path).kept_flags("triage") == Layer(KEPT_LABEL, {"run": {"retries": 0}})

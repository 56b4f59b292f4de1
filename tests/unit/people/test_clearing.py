"""Which jobs are removed together, and which take a word of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentrun.errors import BusyError
from agentrun.people import desk
from agentrun.people.clearing import clear_finished, clearable_jobs
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.views.jobs import view_job
from unit.made import Made


def make(base: Path, name: str, *, days: float | None = None) -> Made:
    """A job of that name; with `days`, its run ended so long ago."""
    made = Made(base, ["a", "b"], name=name)
    made.commit(made.record("a"), made.record("b"))
    if days is not None:
        ended = datetime.now(UTC) - timedelta(days=days)
        made.finish(job=name, ended_at=ended.isoformat())
    return made


@pytest.fixture
def catalogue(tmp_path: Path) -> FolderCatalogue:
    return FolderCatalogue(tmp_path / ".agentrun")


def test_only_finished_jobs_are_removed_together(tmp_path: Path, catalogue: FolderCatalogue) -> None:
    make(tmp_path, "old", days=40)
    make(tmp_path, "new", days=1)
    make(tmp_path, "unfinished")
    broken = make(tmp_path, "broken")
    (broken.folder / "state.json").write_text("{")
    posted = make(tmp_path, "posted", days=50)
    desk.redo(posted.known, desk.Selection(items=["a"]))
    (tmp_path / ".agentrun" / "never-ran").mkdir(mode=0o700)
    found = clearable_jobs(catalogue)
    assert [view.job for view in found.finished] == ["new", "old"]
    assert {view.job: why for view, why in found.spared} == {
        "unfinished": "unfinished",
        "broken": "its state cannot be read",
        "posted": "something is posted for its next start",
    }
    older = clearable_jobs(catalogue, older_than_seconds=30 * 86400)
    assert [view.job for view in older.finished] == ["old"]
    assert {view.job for view, _ in older.spared} == {"broken", "posted"}


def test_a_job_is_removed_only_if_it_is_still_finished_and_nobody_works_on_it(
    tmp_path: Path, catalogue: FolderCatalogue
) -> None:
    made = make(tmp_path, "job", days=40)
    store = catalogue.store("job")
    seen = view_job(store, "job")
    with made.at_work(), pytest.raises(BusyError):
        clear_finished(store, seen)
    assert clear_finished(store, replace(seen, run_id="before")) == "another run has finished meanwhile"
    assert view_job(store, "job").status == "finished"
    assert clear_finished(store, seen) == ""
    assert view_job(store, "job").status == "new"
    unfinished = make(tmp_path, "other")
    other = catalogue.store("other")
    assert clear_finished(other, view_job(other, "other")) == "unfinished"
    assert (unfinished.folder / "state.json").exists()


def test_a_folder_that_was_renamed_is_removed_by_its_own_name(tmp_path: Path, catalogue: FolderCatalogue) -> None:
    make(tmp_path, "job", days=40)
    (tmp_path / ".agentrun" / "job").rename(tmp_path / ".agentrun" / "copy")
    make(tmp_path, "job", days=2)
    found = clearable_jobs(catalogue, older_than_seconds=30 * 86400)
    assert [view.job for view in found.finished] == ["copy"]

"""The jobs of one place, while others begin and clear them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.views.place import Place
from cli.made import Made


def test_a_job_that_appears_while_they_are_listed_changes_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, ["a"])
    made.commit(made.entry("a"))
    place, names = Place(tmp_path, environ={}), FolderCatalogue.names

    def names_and_another(catalogue: FolderCatalogue) -> list[str]:
        found = names(catalogue)
        (catalogue.root / "another" / "runs").mkdir(parents=True, exist_ok=True)
        return found

    monkeypatch.setattr(FolderCatalogue, "names", names_and_another)
    assert [(view.job, view.status) for view in place.jobs()] == [("drafts", "interrupted")]
    assert [(view.job, view.status) for view in place.jobs()] == [("another", "new"), ("drafts", "interrupted")]

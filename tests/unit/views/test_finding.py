"""Which job somebody means, opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentrun.errors import JobError, UsageError
from agentrun.job.fields import Layer
from agentrun.store.memory import MemoryStore
from agentrun.views.finding import (
    KnownJob,
    catalogue_at,
    catalogue_near,
    find_asked,
    find_job,
    open_job,
    open_known,
    root_above,
    store_of,
)
from agentrun.views.jobs import list_jobs
from agentrun.views.listing import read_items
from unit.made import Made
from unit.records import make_record

JOB = 'agent = "agent.py:triage"\n[items]\nlines = "items.txt"\n'


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with the job file triage.toml, which has an unfinished run, and a folder below."""
    (tmp_path / "below").mkdir()
    (tmp_path / "triage.toml").write_text(JOB)
    (tmp_path / "items.txt").write_text("a\nb\n")
    launch(tmp_path, "triage.toml")
    return tmp_path


def launch(base: Path, ref: str | None, **flags: Any) -> None:
    """What a launch leaves that was stopped after the first item."""
    from agentrun.checkpoint.summary import first_checkpoint

    opened = open_job(ref, flags=Layer("flags", flags), cwd=base, environ={})
    store, checkpoint = store_of(opened), first_checkpoint(opened.job, number=1)
    checkpoint.seq, checkpoint.total, checkpoint.context.kept = 1, 2, dict(opened.kept.values)
    lease = store.lock(wait_seconds=0)
    store.load()
    store.commit(checkpoint, [make_record("a", output=1)])
    store.keep("job.json", [opened.job_json])
    lease.release()


def test_a_known_job_is_seen_from_below_and_by_the_place_that_is_named(base: Path) -> None:
    root = base / ".agentrun"
    assert catalogue_near(base / "below", environ={}).names() == ["triage"]
    assert catalogue_near(Path("/"), str(root), {}).names() == ["triage"]
    assert catalogue_near(Path("/"), None, {"AGENTRUN_STATE_DIR": str(root)}).names() == ["triage"]
    assert catalogue_near(base, str(base / "none"), {}).names() == []
    assert [view.job for view in list_jobs(catalogue_at(root))] == ["triage"]
    assert not (base / "none").exists() and not (base / "below" / ".agentrun").exists()


def test_a_job_is_found_by_its_file_by_its_name_and_by_its_function(base: Path) -> None:
    by_file, by_name = find_job("triage.toml", base, environ={}), find_job("triage", base / "below", environ={})
    assert (by_file.kind, by_file.file) == ("file", base / "triage.toml")
    assert (by_name.kind, by_name.root, by_name.name) == ("known", base / ".agentrun", "triage")
    assert by_name.kept is not None and by_name.kept.file == base / "triage.toml"
    assert find_job("agent.py:triage", base, environ={}).name == "triage"
    assert find_job("agent.py:triage", base, environ={}, is_new=True).kind == "agent"
    with pytest.raises(UsageError, match=r"did you mean triage\?"):
        find_job("trage", base, environ={})


def test_what_was_found_is_not_looked_for_again(base: Path) -> None:
    found = find_job("triage", base / "below", environ={})
    opened = open_job("nonsense", found=found, cwd=Path("/"), environ={})
    assert (opened.job.name, opened.job.base, opened.root) == ("triage", base, base / ".agentrun")


def test_the_store_of_an_open_job_is_where_its_state_is(base: Path) -> None:
    opened = open_job("triage", cwd=base, environ={})
    with store_of(opened).reader() as reader:
        assert reader.checkpoint is not None and [record.key for _, record in reader.records()] == ["a"]
    new = open_job("triage.toml", cwd=base, state_dir=str(base / "x"), environ={})
    assert store_of(new).folder == base / "x" / "triage" and not (base / "x").exists()


def test_flags_kept_with_the_unfinished_run_count_until_it_starts_over(base: Path) -> None:
    launch(base, None, name="fetch", command=["./fetch.sh", "{}"], items={"lines": "items.txt"}, run={"concurrency": 4})
    assert open_job("fetch", cwd=base, environ={}).job.concurrency == 4
    again = open_job("fetch", flags=Layer("flags", {"run": {"concurrency": 2}}), cwd=base, environ={})
    assert (again.job.concurrency, again.job.command) == (2, ("./fetch.sh", "{}"))
    (base / "triage.toml").write_text(JOB + "[run]\nconcurrency = 7\n")
    assert open_job("triage", cwd=base, environ={}, fresh=True).job.concurrency == 7


@pytest.mark.parametrize("ref", ["triage", "triage.toml"])
def test_a_job_to_look_at_has_its_description_and_its_store(base: Path, ref: str) -> None:
    known = open_known(ref, base, environ={})
    assert (known.name, known.shown, known.problem) == ("triage", "triage", "")
    assert known.job is not None and known.job.file == base / "triage.toml"
    assert [(item.key, item.record is not None) for item in read_items(known.store)] == [("a", True)]


def test_a_job_whose_description_cannot_be_read_is_known_by_the_beginning_of_its_name(base: Path) -> None:
    launch(base, None, command=["./fetch.sh", "{}"], items={"lines": "items.txt"})
    (folder,) = (base / ".agentrun").glob("fetch-*")
    (folder / "job.json").write_text("{")
    known = open_known("fetch", base, environ={})
    assert (known.name, known.job) == (folder.name, None) and "is not JSON" in known.problem


def test_the_job_of_a_folder_above_is_found_by_what_is_asked(base: Path) -> None:
    flags = {"command": ["./fetch.sh", "{}"], "items": {"lines": "items.txt"}}
    assert find_asked(Layer("flags", flags), base / ".agentrun") is None
    launch(base, None, **flags)
    found = find_asked(Layer("flags", flags), base / ".agentrun")
    assert found is not None and found.name.startswith("fetch-") and found.kept is not None
    assert root_above(base / "below", environ={}) == base / ".agentrun"
    assert root_above(base, environ={}) is None
    assert root_above(base / "below", str(base / ".agentrun"), environ={}) is None


@pytest.mark.parametrize("ref", ["triage", "triage.toml", "./triage.toml"])
@pytest.mark.parametrize("text", ["agent = ", "colour = 1\n" + JOB, None], ids=["no TOML", "no job", "gone"])
def test_a_job_whose_description_cannot_be_read_is_known_by_its_records(base: Path, ref: str, text: str | None) -> None:
    if text is None:
        (base / "triage.toml").unlink()
    else:
        (base / "triage.toml").write_text(text)
    known = open_known(ref, base, environ={})
    assert known.job is None and known.name == "triage" and known.problem
    assert [item.key for item in read_items(known.store)] == ["a"]


def test_the_job_file_of_a_folder_is_known_by_its_records_too(tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    (tmp_path / "night" / "job.toml").write_text(JOB)
    (tmp_path / "night" / "items.txt").write_text("a\nb\n")
    launch(tmp_path / "night", "job.toml")
    (tmp_path / "night" / "job.toml").write_text("agent = ")
    for ref in ("night", "night/job.toml"):
        known = open_known(ref, tmp_path, environ={})
        assert known.job is None and [item.key for item in read_items(known.store)] == ["a"]


def test_a_job_that_nobody_knows_is_refused_as_it_is(base: Path) -> None:
    with pytest.raises(UsageError, match="no job of that name"):
        open_known("nothing", base, environ={})
    (base / "other.toml").write_text("colour = 1\n" + JOB)
    with pytest.raises(JobError, match="colour") as caught:
        open_known("other.toml", base, environ={})
    assert caught.value.key == "colour" and "other.toml" in caught.value.where


def test_a_job_is_named_in_commands_as_it_was_asked_for() -> None:
    assert KnownJob("triage", MemoryStore()).shown == "triage"
    assert KnownJob("triage", MemoryStore(), command_name="../triage.toml").shown == "../triage.toml"


def test_the_job_of_a_run_is_found_by_the_runs_id_also_after_its_end(tmp_path: Path) -> None:
    first, second = Made(tmp_path, ["a"]), Made(tmp_path, ["a"], name="second")
    first.commit(first.record("a"))
    second.commit(second.record("a"))
    first.finish()
    catalogue = catalogue_at(tmp_path / ".agentrun")
    assert (catalogue.find(first.run_id), catalogue.find(second.run_id)) == ("made", "second")
    assert catalogue.find("20200101T000000-0") is None


def test_a_job_whose_state_is_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    first, second = Made(tmp_path, ["a"]), Made(tmp_path, ["a"], name="second")
    for made in (first, second):
        made.commit(made.record("a"), counts={"pending": 1})
    (first.folder / "state.json").write_bytes(b"{}")
    catalogue = catalogue_at(tmp_path / ".agentrun")
    assert catalogue.find(second.run_id) == "second"
    assert [(view.job, view.status) for view in list_jobs(catalogue)] == [
        ("made", "damaged"),
        ("second", "interrupted"),
    ]

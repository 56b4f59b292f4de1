"""Jobs in a shared store as people see them: sealed, moved, gone, or run on another machine. The real command, with
SQLite."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run
from needs import require_module
from waiting import eventually

Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def store(tmp_path: Path, job: Path) -> str:
    """The address of a file beside the job's folder, which its job file names."""
    address = f"sqlite:///{tmp_path / 'jobs.db'}"
    (job / "job.toml").write_text(
        f'name = "upper"\nagent = "agent.py:upper"\nstore = "{address}"\n[items]\nfiles = "items/*.txt"\n'
    )
    return address


@pytest.fixture
def key(tmp_path: Path, agentrun: Run) -> str:
    require_module("cryptography", extra="sealed")
    return agentrun("rekey", "--new").stdout.strip()


@pytest.fixture
def other_key(agentrun: Run) -> str:
    return agentrun("rekey", "--new").stdout.strip()


def shown(agentrun: Run, *arguments: str, **more: object) -> dict[str, object]:
    found = agentrun("status", *arguments, "--json", **more)
    assert found.returncode == 0, found.stderr
    value: dict[str, object] = json.loads(found.stdout)
    return value


def drop(folder: Path) -> None:
    for path in folder.glob("jobs.db*"):
        path.unlink()


# ---- not sealed, though a key is set


def test_a_job_that_is_not_sealed_names_the_command_that_seals_it(
    agentrun: Run, job: Path, store: str, key: str
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    for command in (["start", "upper"], ["start", "upper", "--fresh", "--yes"], ["start", "job.toml"]):
        refused = agentrun(*command, cwd=job, AGENTRUN_KEY=key)
        assert refused.returncode == 65
        assert f"upper in {store}: is not sealed, but a key is set; " in refused.stderr
        assert "agentrun rekey upper --seal" in refused.stderr and "--fresh" not in refused.stderr
    listed = agentrun("status", cwd=job, AGENTRUN_KEY=key)
    assert listed.returncode == 0 and "interrupted (not sealed)  1/3" in listed.stdout
    assert "upper: not sealed, but a key is set" in listed.stderr
    found = shown(agentrun, "upper", cwd=job, AGENTRUN_KEY=key)
    assert (found["status"], found["sealed"], found["figures_only"]) == ("interrupted", False, True)
    assert "is not sealed" in str(found["problem"])
    assert agentrun("rekey", "upper", "--seal", cwd=job, AGENTRUN_KEY=key).returncode == 0
    assert agentrun("start", "upper", cwd=job, AGENTRUN_KEY=key).returncode == 0


def test_the_table_says_why_a_job_is_damaged(agentrun: Run, job: Path) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    state = next((job / ".agentrun").glob("*/state.json"))
    state.write_text(state.read_text().replace('"seq"', '"sqe"', 1))
    listed = agentrun("status", cwd=job)
    assert "damaged" in listed.stdout and "was changed since agentrun wrote it" in listed.stderr


# ---- sealed


def test_the_figures_of_a_sealed_job_are_seen_without_its_key(
    agentrun: Run, job: Path, store: str, key: str, other_key: str
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job, AGENTRUN_KEY=key).returncode == 4
    run_id = shown(agentrun, "upper", cwd=job, AGENTRUN_KEY=key)["run_id"]
    for given in ({}, {"AGENTRUN_KEY": other_key}):
        for where in ((), ("--store", store)):
            listed = agentrun("status", *where, cwd=job, **given)
            assert listed.returncode == 0 and "interrupted (sealed)  1/3" in listed.stdout
            assert listed.stderr == "upper: sealed; without the key only the figures are shown\n"
        told = agentrun("status", "upper", cwd=job, **given)
        assert told.returncode == 0 and "upper: interrupted (sealed), 1 of 3 done, 2 to run" in told.stdout
        assert str(run_id) in told.stdout and "agent.py" not in told.stdout
        for ref in ("upper", "job.toml", str(run_id)):
            found = shown(agentrun, ref, cwd=job, **given)
            assert (found["sealed"], found["figures_only"], found["run_id"]) == (True, True, run_id)
            assert (found["counts"], found["total"], found["seq"]) == (
                {"pending": 2, "done": 1, "failed": 0, "skipped": 0, "waiting": 0},
                3,
                found["seq"],
            )
            assert "is sealed with key" in str(found["problem"])
    found = shown(agentrun, "upper", cwd=job, AGENTRUN_KEY=key)
    assert (found["sealed"], found["figures_only"], found["problem"]) == (True, False, "")


def test_the_figures_of_a_finished_sealed_job_are_seen_without_its_key(
    agentrun: Run, job: Path, store: str, key: str
) -> None:
    assert agentrun("start", "job.toml", cwd=job, AGENTRUN_KEY=key).returncode == 0
    found = shown(agentrun, "upper", cwd=job)
    assert (found["status"], found["total"], found["sealed"]) == ("finished", 3, True)
    assert found["updated_at"] and found["started_at"] and found["output"] is None
    first = str(found["run_id"])
    (job / "items" / "d.txt").write_text("text d")
    assert agentrun("start", "job.toml", cwd=job, AGENTRUN_KEY=key).returncode == 0
    found = shown(agentrun, "upper", cwd=job)
    assert found["total"] == 4
    earlier = shown(agentrun, first, cwd=job)
    assert (earlier["total"], earlier["newest_run"]) == (3, found["run_id"])


def test_a_wrong_or_missing_key_is_said_once(agentrun: Run, job: Path, store: str, key: str, other_key: str) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job, AGENTRUN_KEY=key).returncode == 4
    for command in ("results", "items", "failures", "runs", "diff", "log", "report", "review"):
        told = agentrun(command, "upper", cwd=job)
        assert told.returncode == 2 and told.stderr.count("is sealed with key") == 1, (command, told.stderr)
        assert "using only" not in told.stderr
    wrong = agentrun("results", "upper", cwd=job, AGENTRUN_KEY=other_key)
    assert wrong.returncode == 2 and wrong.stderr.count("but the key given is") == 1
    assert "set the right one in AGENTRUN_KEY" in wrong.stderr and "using only" not in wrong.stderr


def test_a_runner_is_stopped_without_its_key(agentrun: Run, begin: Begin, job: Path, store: str, key: str) -> None:
    process = begin("start", "job.toml", cwd=job, UNTIL="never", AGENTRUN_KEY=key)
    eventually(lambda: (job / "ran.log").exists(), "an item has begun")
    assert shown(agentrun, "upper", cwd=job)["status"] == "running"
    stopped = agentrun("stop", "upper", "--now", cwd=job)
    assert stopped.returncode == 0, stopped.stderr
    assert "upper: stopped; to resume: agentrun resume upper\n" in stopped.stderr
    assert process.wait() == 143


def test_a_job_whose_key_is_lost_can_be_removed(agentrun: Run, job: Path, store: str, key: str, other_key: str) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job, AGENTRUN_KEY=key).returncode == 4
    for given in ({}, {"AGENTRUN_KEY": other_key}):
        for flags in ((), ("--fresh", "--yes")):
            refused = agentrun("start", "job.toml", *flags, cwd=job, **given)
            assert refused.returncode == 2
            assert "if the key is lost, the job can only be removed: agentrun clear upper" in refused.stderr
    left = agentrun("clear", "--finished", "--yes", cwd=job)
    assert "sealed, and its key is not given" in left.stderr
    cleared = agentrun("clear", "upper", "--yes", cwd=job)
    assert cleared.returncode == 0, cleared.stderr
    assert "unfinished, with 1 result, sealed, so that it cannot be read without its key" in cleared.stderr
    assert agentrun("start", "job.toml", cwd=job, AGENTRUN_KEY=other_key).returncode == 0


def test_an_empty_variable_does_not_count_beside_a_key(agentrun: Run, job: Path, store: str, key: str) -> None:
    given = {"AGENTRUN_KEY": key, "AGENTRUN_KEY_FILE": ""}
    assert agentrun("start", "job.toml", cwd=job, **given).returncode == 0
    assert shown(agentrun, "upper", cwd=job)["sealed"] is True


# ---- moved, older, gone


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_job_that_was_moved_away_looks_moved(
    agentrun: Run, job: Path, store: str, tmp_path: Path, is_shared: bool
) -> None:
    if not is_shared:
        text = (job / "job.toml").read_text()
        (job / "job.toml").write_text(text.replace(store, "folder"))
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    assert agentrun("export", "upper", "-o", "upper.agentrun", "--move", cwd=job).returncode == 0
    assert "moved  1/3" in agentrun("status", cwd=job).stdout
    told = agentrun("status", "upper", cwd=job)
    assert told.returncode == 0 and "upper: moved, 1 of 3 done" in told.stdout
    assert f"to {job / 'upper.agentrun'} on " in told.stdout and "agentrun export upper --undo" in told.stdout
    assert "agentrun resume" not in told.stdout
    found = shown(agentrun, "upper", cwd=job)
    assert found["status"] == "moved"
    assert isinstance(found["moved"], dict) and found["moved"]["file"] == str(job / "upper.agentrun")
    report = agentrun("report", "upper", "--md", cwd=job).stdout
    assert "# upper: moved" in report and "agentrun export upper" in report and "agentrun resume" not in report
    assert agentrun("export", "upper", "--undo", cwd=job).returncode == 0
    found = shown(agentrun, "upper", cwd=job)
    assert (found["status"], found["moved"]) == ("interrupted", None)


@pytest.mark.parametrize("is_shared", [True, False])
def test_the_id_of_an_earlier_run_shows_that_run(agentrun: Run, job: Path, store: str, is_shared: bool) -> None:
    if not is_shared:
        text = (job / "job.toml").read_text()
        (job / "job.toml").write_text(text.replace(store, "folder"))
    run_ids = []
    for number in range(5):
        (job / "items" / f"more-{number}.txt").write_text("text more")
        assert agentrun("start", "job.toml", cwd=job).returncode == 0
        run_ids.append(shown(agentrun, "upper", cwd=job)["run_id"])
    first, last = str(run_ids[0]), str(run_ids[-1])
    assert shown(agentrun, last, cwd=job)["total"] == 8
    found = shown(agentrun, first, cwd=job)
    assert (found["run_id"], found["total"], found["newest_run"]) == (first, 4, last), "its records are gone by now"
    told = agentrun("status", first, cwd=job).stdout
    assert "4 of 4 done" in told and f"not the newest ({last})" in told and "agentrun status upper" in told


def test_a_file_that_is_not_there_is_not_an_empty_store(agentrun: Run, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/nowhere/x.db"
    for command in (["status"], ["status", "upper"], ["results", "upper"], ["clear", "--finished"]):
        told = agentrun(*command, "--store", address)
        assert told.returncode == 2 and f"{address}: there is no such file" in told.stderr


def test_a_store_without_jobs_is_named(agentrun: Run, job: Path, store: str) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    assert agentrun("clear", "upper", "--yes", cwd=job).returncode == 0
    told = agentrun("status", "--store", store)
    assert (told.returncode, told.stderr) == (0, f"{store}: there are no jobs in this store\n")


def test_readers_notice_a_store_that_has_lost_its_data(agentrun: Run, job: Path, store: str, tmp_path: Path) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    run_id = shown(agentrun, "upper", cwd=job)["run_id"]
    drop(tmp_path)
    lost = f"has no run of this job, but {run_id} was there before; is it the right file or server?"
    listed = agentrun("status", cwd=job)
    assert listed.returncode == 0 and "unreachable" in listed.stdout and lost in listed.stderr
    assert lost in agentrun("status", "upper", cwd=job).stdout
    for command in ("results", "items", "failures", "runs", "report"):
        for ref in ("upper", "job.toml"):
            told = agentrun(command, ref, cwd=job)
            assert told.returncode == 65 and told.stderr.count(lost) == 1, (command, ref, told.stderr)
            assert "job.json is gone" not in told.stderr


def test_an_error_of_the_store_is_said_once_for_all_of_its_jobs(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        assert agentrun("start", "job.toml", "--name", name, "-o", f"{name}.jsonl", cwd=job).returncode == 0
    drop(tmp_path)
    (tmp_path / "jobs.db").write_text("no database\n" * 100)
    told = agentrun("status", cwd=job)
    assert told.stdout.count("damaged") == 2 and told.stderr.count("is not a sound database") == 1


# ---- run on another machine


def test_logs_and_inputs_that_are_elsewhere_are_said_to_be_there(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    shutil.copytree(job, away := tmp_path / "away", ignore=shutil.ignore_patterns(".agentrun", "items", "job.toml"))
    for arguments in (["log", "upper"], ["log", "upper", "items/a.txt"]):
        told = agentrun(*arguments, "--store", store, cwd=away)
        assert told.returncode == 0 and f"in {job}" in told.stderr, told.stderr
        assert "printed nothing" not in told.stderr and "nothing has happened" not in told.stderr
    told = agentrun("show", "upper", "items/a.txt", "--store", store, cwd=away)
    assert "0 (of 3)" in told.stdout and f"in {job}" in told.stdout and "no longer there" not in told.stdout


def test_the_flags_of_a_command_are_in_its_hint_and_not_in_the_name_of_the_job(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    told = agentrun("diff", "upper", "--store", store, cwd=tmp_path).stderr.splitlines()[-1]
    assert told.startswith("upper: only run 1 has finished"), told
    told = agentrun("results", "upper", "--run", "9", "--store", store, cwd=tmp_path).stderr.splitlines()[-1]
    assert told == f"upper: no run 9 is known; see: agentrun runs upper --store {store}"

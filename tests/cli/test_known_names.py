"""A job that is known under another name than its job file has: its name on the command line means that job."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli.conftest import Run


def ran(folder: Path) -> int:
    log = folder / "ran.log"
    return len(log.read_text().split()) if log.exists() else 0


@pytest.fixture(params=["folder", "shared"])
def named(request: pytest.FixtureRequest, tmp_path: Path, job: Path) -> Path:
    """A job file that names its job `own`, with its state in the folder or in a store that others share."""
    store = f'store = "sqlite:///{tmp_path / "jobs.db"}"\n' if request.param == "shared" else ""
    (job / "job.toml").write_text(f'name = "own"\n{store}agent = "agent.py:upper"\n[items]\nfiles = "items/*.txt"\n')
    return job


def test_the_name_of_a_finished_job_means_that_job_whatever_its_file_is_called(agentrun: Run, named: Path) -> None:
    assert agentrun("start", "job.toml", "--name", "third", cwd=named).returncode == 0
    for _ in range(2):
        again = agentrun("start", "third", cwd=named)
        assert again.returncode == 0 and "third: nothing to run, 3 results kept" in again.stderr, again.stderr
    resumed = agentrun("resume", "third", cwd=named)
    assert resumed.returncode == 0 and "third: nothing to resume" in resumed.stderr, resumed.stderr
    (named / "items" / "d.txt").write_text("text d")
    for _ in range(2):
        more = agentrun("start", "third", cwd=named)
        assert more.returncode == 0, more.stderr
    assert ran(named) == 4, "nothing was run again"
    assert json.loads(agentrun("status", "third", "--json", cwd=named).stdout)["counts"]["done"] == 4
    assert len(agentrun("results", "third", cwd=named).stdout.splitlines()) == 4
    assert "nothing to run, 4 results kept" in agentrun("start", "job.toml", "--name", "third", cwd=named).stderr
    own = agentrun("start", "job.toml", "--plan", cwd=named)
    assert own.stdout.startswith("own: would start a new run of 4 items"), own.stdout


def test_the_name_of_an_unfinished_job_means_that_job(agentrun: Run, named: Path) -> None:
    assert agentrun("start", "job.toml", "--name", "third", "--limit", "1", cwd=named).returncode == 4
    assert agentrun("start", "third", "--limit", "1", cwd=named).returncode == 4
    assert agentrun("resume", "third", cwd=named).returncode == 0
    assert "nothing to run, 3 results kept" in agentrun("start", "third", cwd=named).stderr
    assert ran(named) == 3
    fresh = agentrun("start", "third", "--fresh", "--yes", cwd=named)
    assert fresh.returncode == 0 and fresh.stderr.startswith("third: 3 items"), fresh.stderr
    assert "nothing to run, 3 results kept" in agentrun("start", "third", cwd=named).stderr


def test_a_job_whose_file_got_another_name_is_still_known_by_its_own(agentrun: Run, job: Path) -> None:
    text = '{}agent = "agent.py:upper"\n[items]\nfiles = "items/*.txt"\n'
    (job / "job.toml").write_text(text.format('name = "before"\n'))
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    (job / "job.toml").write_text(text.format('name = "after"\n'))
    again = agentrun("start", "before", cwd=job)
    assert again.returncode == 0 and "before: nothing to run, 3 results kept" in again.stderr, again.stderr
    assert ran(job) == 3


def test_a_job_that_was_imported_under_another_name_is_started_by_it(agentrun: Run, named: Path) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=named).returncode == 4
    assert agentrun("export", "own", "-o", "x.agentrun", cwd=named).returncode == 0
    words = ["import", "x.agentrun", "--name", "second"]
    if "store = " in (named / "job.toml").read_text():
        words += ["--store", f"sqlite:///{named.parent / 'jobs.db'}"]
    imported = agentrun(*words, cwd=named)
    assert imported.returncode == 0, imported.stderr
    assert agentrun("resume", "second", cwd=named).returncode == 0
    assert ran(named) == 3
    again = agentrun("start", "second", cwd=named)
    assert again.returncode == 0 and "second: nothing to run, 3 results kept" in again.stderr, again.stderr


def test_params_are_kept_with_the_name_from_run_to_run(agentrun: Run, job: Path) -> None:
    (job / "job.toml").write_text(
        'name = "upper-{customer}"\nagent = "agent.py:upper"\n[params]\ncustomer = ""\n[items]\nfiles = "items/*.txt"\n'
    )
    assert agentrun("start", "job.toml", "--set", "customer=acme", cwd=job).returncode == 0
    for name in ("d", "e"):
        (job / "items" / f"{name}.txt").write_text(f"text {name}")
        again = agentrun("start", "upper-acme", cwd=job)
        assert again.returncode == 0, again.stderr
    assert ran(job) == 5
    other = agentrun("start", "upper-acme", "--set", "customer=bolt", "--plan", cwd=job)
    assert other.stdout.startswith("upper-bolt: would start a new run"), other.stdout + other.stderr


def test_another_machine_takes_over_a_job_that_was_named_on_the_command_line(
    agentrun: Run, job: Path, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    (job / "job.toml").write_text(
        f'name = "own"\nstore = "{store}"\nagent = "agent.py:upper"\n[items]\nfiles = "items/*.txt"\n'
    )
    assert agentrun("start", "job.toml", "--name", "third", cwd=job).returncode == 0
    copy = tmp_path / "copy"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns(".agentrun", "ran.log", "*.jsonl"))
    refused = agentrun("start", "third", "--store", store, cwd=copy)
    assert refused.returncode == 2 and f"agentrun start third --store {store} --adopt" in refused.stderr, refused.stderr
    adopted = agentrun("start", "third", "--store", store, "--adopt", cwd=copy)
    assert adopted.returncode == 0 and "third: nothing to run, 3 results kept" in adopted.stderr, adopted.stderr
    assert ran(copy) == 0

"""Hints about jobs in a shared store work where they are printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Run
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
def copy(tmp_path: Path, job: Path, store: str) -> Path:
    """The same folder on another machine, as far as the store can tell."""
    shutil.copytree(job, tmp_path / "copy")
    return tmp_path / "copy"


def hinted(said: str) -> list[str]:
    """The words of the command in the message, up to its end or a semicolon."""
    found = re.search(r"agentrun ([^;\n]+)", said)
    assert found is not None, said
    return shlex.split(found[1])


# ---- a job of another place


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_the_command_that_takes_a_job_over_is_printed_and_works(
    agentrun: Run, job: Path, copy: Path, verb: str
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    refused = agentrun(verb, "job.toml", cwd=copy)
    assert refused.returncode == 2
    hint = f"take it over with: agentrun {verb} job.toml --adopt; if not, give this job another name\n"
    assert refused.stderr.endswith(hint), refused.stderr
    assert agentrun(*hinted(refused.stderr), cwd=copy).returncode == 0
    back = agentrun("start", "job.toml", cwd=job)
    assert back.returncode == 2 and hinted(back.stderr) == ["start", "upper", "--adopt"]
    assert agentrun(*hinted(back.stderr), cwd=job).returncode == 0


@pytest.mark.parametrize("flags", [["--name", "third"], ["--name", "a b"]])
def test_the_command_has_the_name_and_the_store_that_were_typed(
    agentrun: Run, job: Path, copy: Path, store: str, flags: list[str], tmp_path: Path
) -> None:
    for folder in (job, copy):
        text = (folder / "job.toml").read_text()
        (folder / "job.toml").write_text(text.replace(f'store = "{store}"\n', ""))
    words = ["start", "job.toml", *flags, "--store", store]
    assert agentrun(*words, "--limit", "1", cwd=job).returncode == 4
    refused = agentrun(*words, cwd=copy)
    assert refused.returncode == 2 and hinted(refused.stderr) == [*words, "--adopt"], refused.stderr
    assert agentrun(*hinted(refused.stderr), cwd=copy).returncode == 0


def test_a_fresh_start_of_a_job_of_another_place_is_hinted_as_one(agentrun: Run, job: Path, copy: Path) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    refused = agentrun("start", "job.toml", "--fresh", "--yes", cwd=copy)
    assert refused.returncode == 2 and hinted(refused.stderr) == ["start", "job.toml", "--fresh", "--adopt"]


def test_what_is_new_since_a_run_of_another_place_is_started_with_adopt(agentrun: Run, job: Path, copy: Path) -> None:
    assert agentrun("start", "job.toml", cwd=job).returncode == 0
    (copy / "items" / "d.txt").write_text("text d")
    told = agentrun("resume", "job.toml", cwd=copy)
    assert told.returncode == 0 and "to run them:  agentrun start job.toml --adopt\n" in told.stderr, told.stderr
    assert agentrun(*hinted(told.stderr), cwd=copy).returncode == 0
    assert (copy / "ran.log").read_text().split() == ["items/d.txt"]


# ---- only looking


@pytest.mark.parametrize("verb", ["start", "resume"])
def test_a_launch_without_the_job_file_says_where_it_is(
    agentrun: Run, job: Path, store: str, tmp_path: Path, verb: str
) -> None:
    assert agentrun("start", "job.toml", "--limit", "1", cwd=job).returncode == 4
    (tmp_path / "else").mkdir()
    refused = agentrun(verb, "upper", "--store", store, cwd=tmp_path / "else")
    assert refused.returncode == 2 and "else/job.toml" not in refused.stderr
    assert refused.stderr.startswith("upper: its job file is not here; run it in ") and f":{job}, or" in refused.stderr
    assert agentrun("resume", "upper", cwd=job).returncode == 0


def test_a_job_file_that_is_not_here_is_not_looked_for_where_nobody_said(
    agentrun: Run, job: Path, store: str, tmp_path: Path
) -> None:
    (job / "items" / "b.txt").write_text("bad b")
    assert agentrun("start", "job.toml", cwd=job).returncode == 1
    (tmp_path / "else").mkdir()
    seen = agentrun("failures", "upper", "--store", store, cwd=tmp_path / "else")
    assert "it is bad" in seen.stdout
    assert seen.stderr.startswith("upper: its job file is not in this folder; using only what is on record\n")


@pytest.mark.parametrize("command", [["status"], ["failures"], ["redo", "items/b.txt"]])
def test_where_a_job_can_be_resumed_is_said_in_a_folder_from_which_it_cannot(
    agentrun: Run, job: Path, store: str, tmp_path: Path, command: list[str]
) -> None:
    (job / "items" / "b.txt").write_text("bad b")
    assert agentrun("start", "job.toml", cwd=job).returncode == 1
    (tmp_path / "else").mkdir()
    said = agentrun(command[0], "upper", *command[1:], "--store", store, cwd=tmp_path / "else")
    assert said.returncode == 0, said.stderr
    assert f"go to {socket.gethostname()}:{job}" in said.stdout + said.stderr
    assert "agentrun resume" not in said.stdout + said.stderr


@pytest.mark.parametrize("command", [["redo", "--now"], ["skip", "--resume"]])
def test_nothing_is_posted_if_it_is_to_be_resumed_where_it_cannot(
    agentrun: Run, job: Path, store: str, tmp_path: Path, command: list[str]
) -> None:
    (job / "items" / "b.txt").write_text("bad b")
    assert agentrun("start", "job.toml", cwd=job).returncode == 1
    (tmp_path / "else").mkdir()
    where = ["--store", store]
    refused = agentrun(command[0], "upper", "items/b.txt", *command[1:], *where, cwd=tmp_path / "else")
    assert refused.returncode == 2 and "nothing is posted" in refused.stderr and f":{job}" in refused.stderr
    seen = json.loads(agentrun("status", "upper", "--json", *where, cwd=tmp_path / "else").stdout)
    assert seen["posted"] == {}


# ---- busy


@pytest.mark.parametrize("command", [["clear", "--yes"], ["export"]])
def test_a_busy_job_is_stopped_by_the_command_that_is_printed(
    agentrun: Run, begin: Begin, job: Path, store: str, tmp_path: Path, command: list[str]
) -> None:
    runner = begin("start", "job.toml", cwd=job, UNTIL="never")
    eventually((job / "ran.log").exists, "an item has begun", alive=runner)
    (tmp_path / "else").mkdir()
    busy = agentrun(*command, "upper", "--store", store, cwd=tmp_path / "else")
    assert busy.returncode == 75 and hinted(busy.stderr) == ["stop", "upper", "--store", store], busy.stderr
    here = agentrun(*command, "upper", cwd=job)
    assert here.returncode == 75 and hinted(here.stderr) == ["stop", "upper"]
    stopped = agentrun(*hinted(busy.stderr), "--now", cwd=tmp_path / "else")
    assert stopped.returncode == 0, stopped.stderr
    assert runner.wait() == 143

"""Every sample is run, as its README says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
AGENTRUN = str(Path(sys.executable).parent / "agentrun")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A copy: results and state are written beside the job file."""
    ignored = shutil.ignore_patterns(".agentrun", "*.results.jsonl", "__pycache__")
    return shutil.copytree(REPOSITORY / "samples", tmp_path / "samples", ignore=ignored)


def call(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRIAGE_SECONDS": "0", **variables}
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=500, check=False)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_triage_sorts_200_documents(samples: Path) -> None:
    done = call(AGENTRUN, "start", "triage/job.toml", cwd=samples)
    assert done.returncode == 0, done.stderr
    results = lines_of(samples / "triage/triage.results.jsonl")
    assert [line["key"] for line in results] == [f"documents/{n:04}.txt" for n in range(1, 201)]
    categories = Counter(line["output"]["category"] for line in results)
    assert categories["billing"] > categories["spam"] > 0
    assert sum(categories.values()) == 200


def test_the_documents_of_triage_are_what_their_generator_makes(samples: Path) -> None:
    before = {path.name: path.read_bytes() for path in (samples / "triage/documents").iterdir()}
    assert call(sys.executable, "triage/make_documents.py", cwd=samples).returncode == 0
    assert {path.name: path.read_bytes() for path in (samples / "triage/documents").iterdir()} == before


def test_a_shell_agent_counts_words(samples: Path) -> None:
    done = call(AGENTRUN, "start", "command/job.toml", cwd=samples)
    assert done.returncode == 0, done.stderr
    (results,) = (samples / "command").glob("*.results.jsonl")
    rain = next(line for line in lines_of(results) if line["key"] == "texts/rain.txt")
    assert rain["output"]["words"] == 38
    assert rain["output"]["frequent"]["rain"] == 6


def test_an_empty_text_fails_alone(samples: Path) -> None:
    (samples / "command/texts/x.txt").touch()
    done = call(AGENTRUN, "start", "command/job.toml", cwd=samples)
    assert done.returncode == 1
    shown = call(AGENTRUN, "failures", "command/job.toml", cwd=samples)
    assert "texts/x.txt" in shown.stdout


def test_lines_are_given_to_a_program(samples: Path) -> None:
    command = ["start", "--name", "fetch", "--items", "urls.txt", "--as", "lines", "--", "./fetch.sh", "{}"]
    done = call(AGENTRUN, *command, cwd=samples / "command")
    assert done.returncode == 0, done.stderr
    assert len(lines_of(samples / "command/fetch.results.jsonl")) == 4
    # By name, from now on.
    again = call(AGENTRUN, "start", "fetch", cwd=samples / "command")
    assert again.returncode == 0, again.stderr


def test_a_python_batch_is_fixed_and_pays_only_for_what_failed(samples: Path) -> None:
    folder = samples / "python_api"
    first = call(sys.executable, "run_batch.py", cwd=folder)
    assert first.returncode == 1, first.stderr
    assert "failed 1" in first.stdout
    second = call(sys.executable, "run_batch.py", "--fixed", cwd=folder)
    assert second.returncode == 0, second.stderr
    assert "done 6, failed 0" in second.stdout


def test_an_async_agent_runs_on_the_callers_loop(samples: Path) -> None:
    done = call(sys.executable, "notebook_style.py", cwd=samples / "python_api")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done 3, skipped 1, delivered 3"


def test_the_nightly_script_is_silent_when_all_is_well(samples: Path) -> None:
    done = call("./nightly.sh", cwd=samples / "cron", AGENTRUN=AGENTRUN)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (results,) = (samples / "cron").glob("*.results.jsonl")
    assert len(lines_of(results)) == 3


@pytest.mark.parametrize("code", [0, 1, 75])
def test_the_nightly_script_passes_the_exit_code_on(samples: Path, tmp_path: Path, code: int) -> None:
    fake = tmp_path / "fake"
    fake.write_text(f'#!/bin/sh\necho "$PWD: $*"\nexit {code}\n')
    fake.chmod(0o755)
    done = call(str(samples / "cron/nightly.sh"), "start", cwd=tmp_path, AGENTRUN=str(fake))
    assert done.returncode == code
    assert done.stdout.startswith(f"{samples / 'cron'}: start job.toml")


@pytest.mark.parametrize("first", range(1, 5))
def test_a_night_that_dies_at_any_call_after_its_last_checkpoint_pays_for_nothing_twice(
    samples: Path, first: int
) -> None:
    night = samples / "cron"
    agent = (night / "agent.py").read_text()
    begin = "def digest(item: Item) -> dict[str, Any]:\n"
    assert begin in agent
    note = begin + '    with open("calls.log", "a") as log:\n        log.write(item.path.name + "\\n")\n'
    (night / "agent.py").write_text(agent.replace(begin, note))
    done = call(sys.executable, str(Path(__file__).parent / "dying.py"), str(first), "4", cwd=night)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 5

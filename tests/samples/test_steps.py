"""The samples of steps: killed hard in the middle, and resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import PATIENCE_SECONDS, eventually

SAMPLE = Path(__file__).parents[2] / "samples" / "steps"
AGENTRUN = str(Path(sys.executable).parent / "agentrun")
EXPECTED = {
    "texts/harbour.txt": "45 words, the longest is everything",
    "texts/library.txt": "47 words, the longest is radiators",
    "texts/train.txt": "43 words, the longest is remembers",
}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns(".agentrun", "*.results.jsonl", "__pycache__")
    return shutil.copytree(SAMPLE, tmp_path / "steps", ignore=ignored)


def start(job: str, sample: Path, seconds: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [AGENTRUN, "start", job],
        cwd=sample,
        env={**os.environ, "STEPS_SECONDS": seconds},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job: str, sample: Path) -> None:
    with start(job, sample, "0") as runner:
        _, said = runner.communicate(timeout=PATIENCE_SECONDS)
    assert runner.returncode == 0, said


def results(sample: Path, name: str) -> dict[str, str]:
    lines = (sample / f"{name}.results.jsonl").read_text().splitlines()
    return {line["key"]: line["output"] for line in map(json.loads, lines)}


@pytest.mark.parametrize(("job", "name"), [("job.toml", "steps"), ("python.toml", "steps-python")])
def test_three_steps_for_each_text(sample: Path, job: str, name: str) -> None:
    finish(job, sample)
    assert results(sample, name) == EXPECTED


def test_killed_in_a_step_the_shell_agent_repeats_only_that(sample: Path) -> None:
    """The scratch folder, in which the calls are noted, is kept until the item is done."""

    def calls() -> list[str]:
        found = [path.read_text().split() for path in sample.glob(".agentrun/steps/work/*/dir/calls")]
        return found[0] if found else []

    # The first item's first step has its time, the second is killed in it.
    (sample / "slowly").write_text((sample / "slowly").read_text().replace("sleep", '[ "$1" = tr ] || sleep'))
    runner = start("job.toml", sample, "60")
    eventually(lambda: calls() == ["tr", "wc"], "two steps")
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    keep = 'cp "$AGENTRUN_ITEM_DIR/calls" "$AGENTRUN_OUT_DIR/calls"\n'
    (sample / "digest.sh").write_text((sample / "digest.sh").read_text() + keep)
    finish("job.toml", sample)
    assert results(sample, "steps") == EXPECTED
    (noted,) = sample.glob("*.files/*harbour*/calls")
    assert noted.read_text().split() == ["tr", "wc", "wc", "awk"]


def test_killed_in_a_step_the_python_agent_repeats_only_that(sample: Path) -> None:
    agent = sample / "digest.py"
    agent.write_text(
        agent.read_text().replace(
            "    time.sleep(SECONDS)\n",
            '    with open("calls", "a") as file:\n'
            '        file.write(function.__name__ + "\\n")\n'
            "    time.sleep(SECONDS if function is len else 0)\n",
        )
    )
    calls = sample / "calls"
    runner = start("python.toml", sample, "60")
    eventually(lambda: calls.exists() and calls.read_text().split() == ["findall", "len"], "two steps")
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    finish("python.toml", sample)
    assert results(sample, "steps-python") == EXPECTED
    assert calls.read_text().split()[:4] == ["findall", "len", "len", "find_longest"]
    assert len(calls.read_text().split()) == 10

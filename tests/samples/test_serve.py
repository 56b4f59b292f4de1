"""The samples of programs that serve."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from needs import require_program

SAMPLE = Path(__file__).parents[2] / "samples" / "serve"
AGENTRUN = str(Path(sys.executable).parent / "agentrun")
EXPECTED = {
    "texts/harbour.txt": "45 words, the longest is everything",
    "texts/library.txt": "47 words, the longest is radiators",
    "texts/train.txt": "43 words, the longest is remembers",
}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns(".agentrun", "*.results.jsonl", "__pycache__")
    return shutil.copytree(SAMPLE, tmp_path / "serve", ignore=ignored)


@pytest.mark.parametrize(("job", "name"), [("job.toml", "serve"), ("node.toml", "serve-node")])
def test_the_texts_are_digested(sample: Path, job: str, name: str) -> None:
    if job == "node.toml":
        require_program("node")
    done = call("start", job, cwd=sample)
    assert done.returncode == 0, done.stderr
    lines = (sample / f"{name}.results.jsonl").read_text().splitlines()
    assert {line["key"]: line["output"] for line in map(json.loads, lines)} == EXPECTED


def test_what_one_program_cannot_read_fails_alone(sample: Path) -> None:
    (sample / "texts" / 'say "a".txt').write_text("a")
    done = call("start", "job.toml", cwd=sample)
    assert done.returncode == 1, done.stderr
    assert "its path is too odd" in call("failures", "job.toml", cwd=sample).stdout
    assert len((sample / "serve.results.partial.jsonl").read_text().splitlines()) == len(EXPECTED)


def call(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([AGENTRUN, *words], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)

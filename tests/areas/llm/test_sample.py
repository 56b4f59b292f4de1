"""The sample with a prompt, against a server on loopback in place of a model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llm.server import serve

SAMPLE = Path(__file__).parents[3] / "samples" / "prompt"
AGENTRUN = str(Path(sys.executable).parent / "agentrun")


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_the_minutes_are_read_by_a_model(tmp_path: Path, way: str) -> None:
    ignored = shutil.ignore_patterns(".agentrun", "*.results.jsonl")
    folder = shutil.copytree(SAMPLE, tmp_path / "prompt", ignore=ignored)
    command = [AGENTRUN, "start", "prompt/job.toml"]
    with serve() as llm:
        environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        if way == "flag":
            command += ["--model", "openai:llama3.2", "--base-url", llm.url]
        else:
            environment["OPENAI_BASE_URL"] = llm.url
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in (folder / "prompt.results.jsonl").read_text().splitlines()]
    names = ["allotment", "boiler", "choir", "night-shift"]
    assert [line["key"] for line in lines] == [f"minutes/{name}.md" for name in names]
    assert all(set(line["output"]) == {"subject", "decisions", "actions", "mood"} for line in lines)
    asked = {next(name for name in names if f"minutes/{name}.md" in one.text): one for one in llm.asked}
    assert "sea songs" in asked["choir"].text and "the template {name} stays" in asked["choir"].text
    assert asked["choir"].system.startswith("You read the minutes of meetings for someone who was not there.")
    assert asked["choir"].body["model"] == ("llama3.2" if way == "flag" else "gpt-5-mini")

"""samples/cluster: on a Dask LocalCluster, as on this machine alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from needs import require_linux, require_module

REPOSITORY = Path(__file__).parents[2]
AGENTRUN = str(Path(sys.executable).parent / "agentrun")


def start(folder: Path, *more: str) -> dict[str, bytes]:
    """What a start writes, by path."""
    shutil.copytree(
        REPOSITORY / "samples/cluster",
        folder,
        ignore=shutil.ignore_patterns(".agentrun", "*.results*", "__pycache__"),
    )
    command = [AGENTRUN, "start", "job.toml", "--set", "days=20", *more]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [path for path in folder.rglob("*.results*/**/*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in [*found, folder / "helpdesk.results.jsonl"]}


def test_plans_are_simulated_on_a_cluster_as_they_are_here(tmp_path: Path) -> None:
    require_linux()
    require_module("distributed", extra="dask")
    written = start(tmp_path / "there")
    assert written == start(tmp_path / "here", "--on", "here")
    lines = [json.loads(line) for line in written.pop("helpdesk.results.jsonl").splitlines()]
    averages = {line["key"]: line["output"]["average"] for line in lines}
    assert averages["monday-9"] > averages["monday-14"]
    assert set(written) == {f"helpdesk.results.files/{key}/days.csv" for key in averages} and len(written) == 24
    assert all(content.count(b"\n") == 21 for content in written.values())

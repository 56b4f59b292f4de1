"""Workers that cannot run attempts of this runner are told before the first item."""

from __future__ import annotations

from pathlib import Path

import pytest

from areas.dask.conftest import make_job
from cluster.dask_servers import serve_dask

WITHOUT = """
import os, sys
sys.path[:] = [entry for entry in sys.path if not os.path.isdir(os.path.join(entry, "agentrun"))]
"""
"""As if it were not installed."""


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (
            "agentrun_batch-9.9.9.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: agentrun-batch\nVersion: 9.9.9\n",
            "it has agentrun 9.9.9, and here it is",
        ),
        ("sitecustomize.py", WITHOUT, "agentrun cannot be imported there"),
    ],
    ids=["another version", "none"],
)
def test_a_worker_with_another_agentrun_or_none_is_named_before_the_first_item(
    tmp_path: Path, file: str, text: str, words: str
) -> None:
    path = tmp_path / "installed" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    job = make_job(tmp_path / "job")
    with serve_dask() as servers:
        servers.start_worker("good")
        servers.start_worker("bad", PYTHONPATH=str(tmp_path / "installed"))
        bad = servers.await_worker("bad")
        servers.await_worker("good")
        ended = job.run("start", "job.toml", "--on", servers.on)
        assert servers.started() == set()
    assert ended.returncode == 2, ended.stderr
    assert f"{bad}: {words}" in ended.stderr and "install" in ended.stderr and "Traceback" not in ended.stderr
    assert job.ran() == []

"""The sample with a Postgres of its own, as `make postgres` starts it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from needs import require
from stores.postgres_server import find_postgres

REPOSITORY = Path(__file__).parents[3]
AGENTRUN = str(Path(sys.executable).parent / "agentrun")


def test_the_sample_runs_in_the_postgres_that_make_starts(tmp_path: Path) -> None:
    require(find_postgres(), "there is no PostgreSQL server", remedy="get it with: make system")
    ignored = shutil.ignore_patterns(".agentrun", "*.results.*", ".pgpass")
    sample = shutil.copytree(REPOSITORY / "samples" / "postgres", tmp_path / "postgres", ignore=ignored)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    # Not below pytest's folder, which only root may enter where root runs the tests.
    folder = Path(tempfile.gettempdir()) / f"agentrun-sample-{secrets.token_hex(6)}"
    environ = {**os.environ, "PORT": port, "FOLDER": str(folder), "LETTERS_SECONDS": "0"}
    store = f"postgres://agentrun@127.0.0.1:{port}/agentrun"

    def call(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=sample, env={**environ, **more}, capture_output=True, text=True, check=False)

    try:
        started = call("./server.sh", "start")
        assert started.returncode == 0, started.stderr
        assert call("./server.sh", "start").returncode == 0, "a second start finds the first one"
        assert (sample / ".pgpass").stat().st_mode & 0o077 == 0
        given = {"PGPASSFILE": str(sample / ".pgpass")}
        ran = call(AGENTRUN, "start", "job.toml", "--store", store, **given)
        assert ran.returncode == 0, ran.stderr
        lines = [json.loads(line) for line in (sample / "letters.results.jsonl").read_text().splitlines()]
        assert len(lines) == 60 and {line["output"]["desk"] for line in lines} > {"repairs", "billing"}
        assert "letters  finished  60/60" in call(AGENTRUN, "status", "--store", store, **given).stdout
        refused = call(AGENTRUN, "status", "letters", PGPASSFILE="/dev/null")
        assert "unreachable" in refused.stdout + refused.stderr or refused.returncode == 2
    finally:
        stopped = call("./server.sh", "stop")
    assert stopped.returncode == 0 and not folder.exists(), stopped.stderr


def test_make_has_both_commands() -> None:
    text = (REPOSITORY / "Makefile").read_text()
    assert "postgres: ##" in text and "postgres-stop: ##" in text

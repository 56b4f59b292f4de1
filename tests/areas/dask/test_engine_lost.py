"""A scheduler that dies, or was never there. These tests mostly wait, with the limits that users have."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from areas.dask.conftest import Begin, finish, make_job
from cluster.dask_servers import serve_dask
from waiting import PATIENCE_SECONDS, eventually


def test_a_scheduler_that_dies_ends_the_launch_with_75_and_nothing_goes_on(begin: Begin, tmp_path: Path) -> None:
    """With the real limits: a minute without a slot, and 10 s without an answer."""
    job = make_job(tmp_path / "job")
    (job / "hold").touch()
    with serve_dask() as servers:
        servers.start_worker("worker", WORKER="worker")
        on = servers.on
        launch = begin("start", "job.toml", "--on", on, "-j", "2", cwd=job.folder)
        eventually(lambda: len(job.ran()) == 2, "two items run", alive=launch)
        servers.kill("scheduler")
        told = finish(launch, code=75)
        eventually(lambda: not servers.started(), "nothing of the launch is left")
    assert f"{on} does not answer any more" in told and "Traceback" not in told
    assert job.status()["counts"]["pending"] == 8
    (job / "hold").unlink()
    ended = job.run("resume", "j", "--on", "here")
    assert ended.returncode == 0, ended.stderr
    assert [one["text"] for one in job.outputs()] == [f"ITEM {n}" for n in range(8)]


def test_a_scheduler_that_is_started_again_gives_slots_again(begin: Begin, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", more='[engine]\non = "here"\nlease = "4s"\n')
    (job / "hold").touch()
    with serve_dask() as servers:
        servers.start_worker("first", WORKER="first")
        launch = begin("start", "job.toml", "--on", servers.on, "-j", "2", cwd=job.folder)
        eventually(lambda: len(job.ran()) == 2, "two items run", alive=launch)
        servers.kill("scheduler")
        servers.kill("first")
        servers.start_scheduler()
        servers.start_worker("second", WORKER="second")
        (job / "hold").unlink()
        told = finish(launch)
    assert "the connection was lost; 2 items will be retried within 6 s" in told and "distributed" not in told
    assert [one["text"] for one in job.outputs()] == [f"ITEM {n}" for n in range(8)]
    assert {line.partition(": ")[0] for line in job.lines("ran.log")[2:]} == {"second"}


def test_an_address_where_nothing_listens_is_exit_75_before_long(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    with socket.socket() as bound:  # and does not listen: nobody else gets the port
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        ended = job.run("start", "job.toml", "--on", f"dask://127.0.0.1:{bound.getsockname()[1]}")
    assert ended.returncode == 75, ended.stderr
    assert "no Dask scheduler answers there (nothing listens at 127.0.0.1:" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert time.monotonic() - began < PATIENCE_SECONDS and job.ran() == []

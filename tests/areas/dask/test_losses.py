"""A worker that is stopped, and launches that are interrupted."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

from areas.dask.conftest import Begin, finish, make_job
from cluster.dask_servers import DaskServers, carriers, serve_dask
from cluster.evidence import is_held
from waiting import eventually

HOLDING = """
    import fcntl, os, subprocess, time

    def note(name, text):
        with open(name, "a") as file:
            file.write(text + "\\n")

    def agent(item):
        held = open(f"{item.index}.lock", "a")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("twice", item.key)
        os.set_inheritable(held.fileno(), True)
        # A child in a session of its own, which outlives its parent unless somebody looks for it.
        child = subprocess.Popen(["sleep", "600"], close_fds=False, start_new_session=True)
        is_again = os.path.exists("ran.log") and item.key in open("ran.log").read()
        note("ran.log", f"{os.environ['WORKER']}: {item.key}")
        while not os.path.exists("finish" if is_again else "go"):
            time.sleep(0.01)
        child.kill()
        child.wait()
        return item.text.upper()
    """
"""Waits for `go`, and when it is run again for `finish`."""


def test_a_worker_stopped_for_longer_than_the_lease_loses_its_item_and_no_item_is_alive_twice(
    begin: Begin, tmp_path: Path
) -> None:
    with serve_dask() as servers:
        for name in ("one", "two"):
            servers.start_worker(name, threads=1, WORKER=name)
        engine = f'[engine]\non = "{servers.on}"\nlease = "2s"\n'
        job = make_job(tmp_path / "job", agent=HOLDING, items=2, more=f"[run]\nconcurrency = 2\n{engine}")
        launch = begin("start", "job.toml", cwd=job.folder)

        def run_by(name: str) -> list[str]:
            return [line.partition(": ")[2] for line in job.lines("ran.log") if line.startswith(name)]

        eventually(lambda: run_by("one") and run_by("two"), "both workers have an item", alive=launch)
        ((item,), (other,)) = run_by("one"), run_by("two")
        lock = job / f"{item.split()[1]}.lock"
        assert is_held(lock)
        os.kill(servers.pid("one"), signal.SIGSTOP)
        eventually(lambda: not is_held(lock), "nothing of the item is alive", alive=launch)
        (job / "go").touch()
        eventually(lambda: run_by("two") == [other, item], "the item runs on the other worker", alive=launch)
        os.kill(servers.pid("one"), signal.SIGCONT)
        eventually(
            lambda: servers.started() & carriers("WORKER", "one"), "a host is beside the worker again", alive=launch
        )
        (job / "finish").touch()
        finish(launch)
        assert servers.started() == set() and servers.scratches() == []
    assert not (job / "twice").exists()
    assert job.outputs() == ["ITEM 0", "ITEM 1"]
    assert len(job.ran()) == 3


@pytest.mark.parametrize("is_terminal", [False, True], ids=["the runner", "all processes of a terminal"])
def test_an_interrupt_stops_within_grace_leaves_nothing_running_and_a_resume_completes(
    begin: Begin, tmp_path: Path, is_terminal: bool
) -> None:
    job, canary = make_job(tmp_path / "job"), uuid.uuid4().hex
    (job / "hold").touch()
    given = ("-j", "2", "--on", "dask")
    launch = begin("start", "job.toml", *given, "--grace", "1s", cwd=job.folder, CANARY=canary)
    eventually(lambda: len(job.ran()) == 2, "two items run", alive=launch)
    for pid in carriers("CANARY", canary) if is_terminal else {launch.pid}:
        if os.getpgid(pid) == os.getpgid(launch.pid):
            os.kill(pid, signal.SIGINT)
    finish(launch, code=130)
    assert carriers("CANARY", canary) == set()
    (job / "hold").unlink()
    ended = job.run("resume", "j", *given)
    assert ended.returncode == 0, ended.stderr
    assert [one["text"] for one in job.outputs()] == [f"ITEM {n}" for n in range(8)]
    assert len(job.ran()) == 10


def test_items_in_flight_may_finish_after_an_interrupt(begin: Begin, cluster: DaskServers, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job")
    (job / "hold").touch()
    launch = begin("start", "job.toml", "--on", cluster.on, "-j", "2", "--grace", "10m", cwd=job.folder)
    eventually(lambda: len(job.ran()) == 2, "two items run", alive=launch)
    launch.send_signal(signal.SIGINT)
    assert launch.stderr is not None
    assert any("2 in flight have 10m00s to finish" in line for line in launch.stderr)
    (job / "hold").unlink()
    finish(launch, code=130)
    assert len(job.ran()) == job.status()["counts"]["done"] == 2
    assert cluster.started() == set() and cluster.scratches() == []

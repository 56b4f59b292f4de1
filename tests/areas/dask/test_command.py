"""`agentrun start --on dask…`: clusters that are started for the launch, and clusters that are there."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from areas.dask.conftest import Begin, JobFolder, finish, make_job
from cluster.dask_servers import DaskServers, carriers
from waiting import eventually


def check_same(job: JobFolder, here: JobFolder) -> None:
    assert job.results == here.results and job.files == here.files and len(job.files) == 8
    assert job.ran() == here.ran()


def test_a_cluster_that_is_started_for_the_launch_does_what_this_machine_would_and_leaves_nothing(
    begin: Begin, here: JobFolder, tmp_path: Path
) -> None:
    job, canary, scratch = make_job(tmp_path / "job"), uuid.uuid4().hex, tmp_path / "tmp"
    scratch.mkdir()
    (job / "hold").touch()
    launch = begin("start", "job.toml", "--on", "dask", "-j", "4", cwd=job.folder, CANARY=canary, TMPDIR=str(scratch))
    eventually(lambda: len(job.ran()) == 4, "four items run", alive=launch)
    eventually(lambda: len(job.wheres()) == 4, "status says where they run", alive=launch)
    assert all(where.startswith("tcp://127.0.0.1:") for where in job.wheres().values())
    assert list(scratch.glob("agentrun-*")) and len(carriers("CANARY", canary)) > 4
    (job / "hold").unlink()
    told = finish(launch)
    assert carriers("CANARY", canary) == set()
    assert list(scratch.glob("agentrun-*")) == [] and not list(scratch.glob("dask-scratch-space/worker-*/*"))
    assert "distributed" not in told
    check_same(job, here)


@pytest.mark.parametrize("way", ["address", "scheduler file"])
def test_a_cluster_that_is_there_does_what_this_machine_would_and_is_left_as_it_was(
    cluster: DaskServers, here: JobFolder, tmp_path: Path, way: str
) -> None:
    job = make_job(tmp_path / "job")
    on = cluster.on if way == "address" else f"dask:{cluster.file}"
    ended = job.run("start", "job.toml", "--on", on, "-j", "4")
    assert ended.returncode == 0, ended.stderr
    check_same(job, here)
    assert cluster.started() == set() and cluster.scratches() == []


def test_a_deployer_of_dask_makes_the_cluster_and_workers_come_as_they_are_wanted(
    here: JobFolder, tmp_path: Path
) -> None:
    more = """
        [run]
        concurrency = 4
        [engine]
        on = "dask:distributed:LocalCluster"
        adapt = { minimum = 0, maximum = 2 }
        [engine.options]
        n_workers = 0
        threads_per_worker = 2
        host = "127.0.0.1"
        dashboard_address = "127.0.0.1:0"
        """
    job = make_job(tmp_path / "job", more=more)
    ended = job.run("start", "job.toml")
    assert ended.returncode == 0, ended.stderr
    check_same(job, here)


def test_items_run_only_where_the_resources_are_that_they_need(
    begin: Begin, cluster: DaskServers, here: JobFolder, tmp_path: Path
) -> None:
    engine = f'[engine]\non = "{cluster.on}"\nresources = {{ gpu = 1 }}\n'
    job = make_job(tmp_path / "job", more=f"[run]\nconcurrency = 4\n{engine}")
    (job / "hold").touch()
    launch = begin("start", "job.toml", cwd=job.folder)
    eventually(lambda: len(job.ran()) == 2, "as many items run as there are resources", alive=launch)
    eventually(lambda: len(job.wheres()) == 2, "status says where they run", alive=launch)
    assert set(job.wheres().values()) == {cluster.address_of("gpu")}
    (job / "hold").unlink()
    finish(launch)
    check_same(job, here)
    assert {line.partition(": ")[0] for line in job.lines("ran.log")} == {"gpu"}


@pytest.mark.parametrize(
    ("engine", "code", "told"),
    [
        ('on = "dask"\noptions = { n_wrokers = 3 }', 2, "rejected [engine.options]: it has no option 'n_wrokers'"),
        ('on = "dask"\noptions = { n_workers = "x" }', 2, "dask: LocalCluster rejected [engine.options]: "),
        ('on = "dask:distributed:Client"', 2, "Client is not a cluster class of Dask; write one, such as"),
        ('on = "dask:distributed:Nope"', 2, "distributed has no Nope; write dask:MODULE:CLASS"),
        ('on = "dask:nothere:Class"', 2, 'there is no package "nothere" here; install it'),
        ('on = "dask:nowhere.json"', 75, "/nowhere.json; start the scheduler with --scheduler-file /"),
        ('on = "dask:package.json"', 75, "/package.json is not the file of a scheduler; start the scheduler with"),
    ],
)
def test_a_cluster_that_cannot_be_had_is_told_in_a_line_and_the_run_before_is_as_it_was(
    tmp_path: Path, engine: str, code: int, told: str
) -> None:
    job = make_job(tmp_path / "job", more=f"[engine]\n{engine}\n")
    (job / "package.json").write_text("{}")
    assert job.run("start", "job.toml", "--on", "here", "--limit", "1").returncode == 4
    state = job / ".agentrun" / "j" / "state.json"
    before = state.read_bytes()
    ended = job.run("start", "job.toml", "--fresh", "--yes")
    assert ended.returncode == code and told in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr and state.read_bytes() == before

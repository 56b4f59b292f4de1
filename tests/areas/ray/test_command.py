"""`agentrun start --on ray…`: a Ray that is started for the launch, and clusters that are there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from areas.ray.conftest import SECRET, SecretJob, files_with
from cluster.network import Network, finish
from needs import require_module
from waiting import eventually

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def test_a_ray_that_is_started_for_the_launch_does_what_this_machine_would_and_leaves_nothing(
    network: Network, tmp_path: Path
) -> None:
    here, job = SecretJob(tmp_path / "here"), SecretJob(tmp_path / "job")
    finish(network.agentrun("start", "job.toml", "--on", "here", cwd=here.folder))
    launch = network.agentrun("start", "job.toml", "--on", "ray", "-j", "2", cwd=job.folder)
    listening: set[str] = set()
    while launch.poll() is None:
        listening |= network.listening()
        time.sleep(0.1)
    told = finish(launch)
    assert listening and listening <= LOOPBACK, listening
    assert network.processes() == {}
    assert [path.name for path in network.tmp.iterdir()] == [] and not (network.home / ".ray").exists()
    assert "raylet" not in told and "WARN" not in told, told
    job.check()
    assert job.results == here.results


@pytest.mark.parametrize("on", ["ray:127.0.0.1:6379", "ray://127.0.0.1:10001"])
def test_a_cluster_that_is_there_serves_too_and_no_file_of_its_session_holds_a_secret(
    network: Network, tmp_path: Path, on: str
) -> None:
    if on.startswith("ray://"):
        require_module("grpc", extra="ray")
        # It gives up on a process that takes longer to start, as on a busy machine.
        patience = {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "300"}
        network.start_head("--ray-client-server-port", "10001", **patience)
        eventually(lambda: 10001 in network.ports(), "the client server listens")
    else:
        network.start_head()
    before = network.processes(lambda command: "gcs_server" in command)
    job = SecretJob(tmp_path / "job")
    finish(network.agentrun("start", "job.toml", "--on", on, cwd=job.folder))
    job.check()
    eventually(lambda: not network.processes(lambda command: "ray::Slot" in command), "the slots are given back")
    eventually(lambda: not list(network.tmp.glob("agentrun-*")), "nothing is left of the hosts")
    files, found = files_with(network.sessions, SECRET)
    assert files > 10 and found == []
    assert files_with(network.tmp, SECRET)[1] == []
    assert before and network.processes(lambda command: "gcs_server" in command) == before, "the cluster goes on"


def test_an_address_where_nothing_listens_is_told_at_once(network: Network, tmp_path: Path) -> None:
    job = SecretJob(tmp_path / "job")
    for on in ("ray:127.0.0.1:6379", "ray://127.0.0.1:10001"):
        told = finish(network.agentrun("start", "job.toml", "--on", on, cwd=job.folder), code=75)
        assert f"{on}: no Ray answers there" in told and "start it, or correct --on, then resume" in told


@pytest.mark.parametrize(
    ("table", "told"),
    [("[engine.options]\nparsecs = 2", ["[engine.options]", "parsecs"]), ("resources = { gpu = 1.5 }", ["GPU", "1.5"])],
)
def test_what_ray_does_not_take_is_told(network: Network, tmp_path: Path, table: str, told: list[str]) -> None:
    job = SecretJob(tmp_path / "job")
    with open(job.folder / "job.toml", "a") as file:
        file.write(f'[engine]\non = "ray"\n{table}\n')
    said = finish(network.agentrun("start", "job.toml", cwd=job.folder), code=2)
    assert "ray: it does not take" in said and all(word in said for word in told)
    assert network.processes() == {} and list(network.tmp.iterdir()) == []

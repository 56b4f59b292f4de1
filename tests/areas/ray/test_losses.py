"""Slots, runners and whole clusters that die in the middle of a run."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from cluster.evidence import EvidentJob
from cluster.network import Network, finish
from waiting import eventually

IMPATIENT = """
from agentrun.executors.cluster.executor import ClusterExecutor
ClusterExecutor.__init__.__kwdefaults__.update(without_slot_seconds=4.0, answer_seconds=4.0)
from agentrun_cli.entry import main
main()
"""
SLOT = "ray::Slot"


def test_a_slot_that_is_killed_and_then_the_runner_cost_no_finished_step(network: Network, tmp_path: Path) -> None:
    job = EvidentJob(tmp_path / "job", on="ray", items=120, concurrency=2)
    network.start_head()
    on = ("--on", "ray:127.0.0.1:6379")
    launch = network.agentrun("start", "job.toml", *on, cwd=job.folder)
    eventually(lambda: job.has_settled(10), "ten items are settled", alive=launch)
    os.kill(next(iter(network.processes(lambda command: SLOT in command))), signal.SIGKILL)
    eventually(lambda: job.has_settled(50), "fifty items are settled", alive=launch)
    launch.kill()
    launch.communicate()
    finish(network.agentrun("resume", "job.toml", *on, cwd=job.folder))
    job.check()
    eventually(lambda: not network.processes(lambda command: SLOT in command), "the slots are given back")
    eventually(lambda: not list(network.tmp.glob("agentrun-*")), "nothing is left of the hosts")


def test_with_a_runner_that_is_killed_ends_the_ray_that_it_started(network: Network, tmp_path: Path) -> None:
    job = EvidentJob(tmp_path / "job", on="ray", items=40, concurrency=2)
    launch = network.agentrun("start", "job.toml", cwd=job.folder)
    eventually(lambda: job.has_settled(5), "five items are settled", alive=launch)
    launch.kill()
    launch.communicate()
    eventually(lambda: not network.processes(), "Ray and the hosts have ended")
    finish(network.agentrun("resume", "job.toml", cwd=job.folder))
    job.check()
    assert network.processes() == {} and list(network.tmp.iterdir()) == []


@pytest.mark.parametrize("dead", ["raylet/raylet", "gcs/gcs_server"])
def test_a_cluster_that_dies_ends_the_launch_as_one_to_be_resumed_later(
    network: Network, tmp_path: Path, dead: str
) -> None:
    job = EvidentJob(tmp_path / "job", on="ray", items=2000, concurrency=2)
    # How long Ray's own processes wait for a server that is gone; it would be a minute.
    soon = {"RAY_gcs_rpc_server_reconnect_timeout_s": "4"}
    network.start_head(**soon)
    command = (sys.executable, "-c", IMPATIENT, "start", "job.toml", "--on", "ray:127.0.0.1:6379")
    launch = network.start(*command, cwd=job.folder, environ=soon)
    eventually(lambda: job.has_settled(4), "four items are settled", alive=launch)
    network.kill(dead)
    told = finish(launch, code=75)
    assert "ray:127.0.0.1:6379 does not answer any more" in told
    job.check_faults()

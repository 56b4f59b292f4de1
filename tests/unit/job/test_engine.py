"""What a job says about the cluster it runs on."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentrun.errors import JobError
from agentrun.job.build import build_job
from agentrun.job.engine import EngineSpec
from agentrun.job.fields import Layer
from agentrun.job.job import Job

LEAST = 'agent = "agent.py:work"\n[items]\nlines = "items.txt"\n'


def build(text: str, *, on: str = "") -> Job:
    layers = [Layer("job.toml", tomllib.loads(LEAST + text), LEAST + text)]
    if on:
        layers.append(Layer("--on", {"engine": {"on": on}}))
    return build_job(layers, base=Path("/base"), file=Path("/base/job.toml"), default_name="job")


def engine(on: str) -> EngineSpec | None:
    return build(f'[engine]\non = "{on}"').engine


def test_a_job_without_the_table_runs_on_this_machine() -> None:
    assert build("").engine is None
    assert engine("here") is None


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("dask", EngineSpec(on="dask", kind="dask")),
        ("dask://larch:8786", EngineSpec(on="dask://larch:8786", kind="dask", address="larch:8786")),
        ("dask://[::1]:8786/", EngineSpec(on="dask://[::1]:8786/", kind="dask", address="[::1]:8786")),
        ("dask:/a/s.json", EngineSpec(on="dask:/a/s.json", kind="dask", file="/a/s.json")),
        ("dask:a.b:C", EngineSpec(on="dask:a.b:C", kind="dask", deployer="a.b:C")),
        ("slurm", EngineSpec(on="slurm", kind="dask", deployer="dask_jobqueue:SLURMCluster")),
        ("ssh", EngineSpec(on="ssh", kind="dask", deployer="distributed:SSHCluster")),
        ("ray", EngineSpec(on="ray", kind="ray")),
        ("ray:larch:6379", EngineSpec(on="ray:larch:6379", kind="ray", address="larch:6379")),
        ("ray://larch:10001", EngineSpec(on="ray://larch:10001", kind="ray", address="larch:10001", is_client=True)),
    ],
)
def test_each_way_to_name_a_cluster(on: str, expected: EngineSpec) -> None:
    assert engine(on) == expected


def test_all_of_the_table() -> None:
    found = build(
        '[engine]\non = "slurm"\nadapt = { minimum = 0, maximum = 20 }\nresources = { gpu = 1 }\n'
        'send = ["agent.py", "prompts"]\nlease = "2m"\n[engine.options]\nqueue = "batch"\ncores = 8'
    ).engine
    assert found == EngineSpec(
        on="slurm",
        kind="dask",
        deployer="dask_jobqueue:SLURMCluster",
        options={"queue": "batch", "cores": 8},
        adapt={"minimum": 0, "maximum": 20},
        resources={"gpu": 1.0},
        send=("agent.py", "prompts"),
        lease_seconds=120.0,
    )


def test_another_cluster_on_the_command_line_comes_without_the_options_of_the_one_in_the_file() -> None:
    text = '[engine]\non = "slurm"\nadapt = { maximum = 20 }\nlease = "2m"\n[engine.options]\ncores = 8'
    found = build(text, on="dask").engine
    assert found == EngineSpec(on="dask", kind="dask", lease_seconds=120.0)
    assert build(text, on="here").engine is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('on = "dsk"', 'engine.on is "dsk"; write dask, dask://HOST:8786,'),
        ('on = ""', "engine.on"),
        ('on = "dask://larch"', "engine.on"),
        ('on = "dask:/a/file"', "write dask://HOST:PORT, dask:/path/of/scheduler.json or dask:MODULE:CLASS"),
        ('on = "ray:larch"', "write ray:HOST:6379, or ray://HOST:10001 for a client server"),
        ('lease = "2m"', "engine.lease needs a cluster: add one to [engine]"),
        ('on = "here"\nlease = "1s"', "write 2 seconds or more"),
        ('on = "dask"\nlease = "1s"', "write 2 seconds or more"),
        ('on = "dask"\noptions = "-j 4"', "engine.options"),
        ('on = "dask://larch:8786"\noptions = { n_workers = 2 }', "engine.options works only with a cluster that"),
        ('on = "ray"\nadapt = { maximum = 2 }', "engine.adapt works only with a Dask cluster"),
        ('on = "dask"\nadapt = { minimum = 3, maximum = 2 }', "write a minimum that is no more than the maximum"),
        ('on = "dask"\nadapt = { maximum = true }', "write { minimum = 0, maximum = 20 }"),
        ('on = "dask"\nresources = { gpu = 0 }', "write a table of numbers over 0"),
        ('on = "dask"\nsend = [3]', "write a list of files and folders"),
        ('on = "dask"\nleese = "3s"', "engine.leese is not a known key; did you mean lease?"),
    ],
)
def test_what_is_wrong_is_said_with_the_key(text: str, said: str) -> None:
    with pytest.raises(JobError) as caught:
        build(f"[engine]\n{text}")
    assert said in caught.value.message

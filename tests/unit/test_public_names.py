from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import agentrun


def test_the_public_names_are_these() -> None:
    assert set(agentrun.__all__) == {
        "AgentError",
        "AgentrunError",
        "Answer",
        "BusyError",
        "CheckpointError",
        "Context",
        "DiskError",
        "Fail",
        "Item",
        "ItemsError",
        "Job",
        "JobError",
        "LaterError",
        "MemoryStore",
        "Parked",
        "PlanError",
        "Retry",
        "RunError",
        "Skip",
        "SourceChangedError",
        "Stop",
        "Summary",
        "UsageError",
        "arun",
        "run",
    }


@pytest.mark.parametrize("name", agentrun.__all__)
def test_each_is_there(name: str) -> None:
    assert getattr(agentrun, name).__name__ == name


@pytest.mark.parametrize(
    "code",
    [
        *(f"from agentrun import {first}, run" for first in ("Summary", "arun", "MemoryStore", "Job")),
        *(f"import agentrun; agentrun.{first}; run = agentrun.run" for first in ("Summary", "MemoryStore")),
        "import agentrun.launch; run = agentrun.run",
    ],
)
def test_run_is_a_function_whatever_was_loaded_before(code: str) -> None:
    """No module of the library may have the name of a public function."""
    subprocess.run([sys.executable, "-c", f"{code}\nassert callable(run), run"], check=True)


def test_another_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'start'"):
        agentrun.start  # noqa: B018


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        ("AgentrunError", 1),
        ("UsageError", 2),
        ("JobError", 2),
        ("ItemsError", 2),
        ("AgentError", 2),
        ("PlanError", 2),
        ("CheckpointError", 65),
        ("DiskError", 74),
        ("LaterError", 75),
        ("BusyError", 75),
        ("SourceChangedError", 75),
    ],
)
def test_errors_have_their_exit_code_and_cross_processes(error: str, exit_code: int) -> None:
    made = getattr(agentrun, error)("where: what; what to do", detail=7)
    assert made.exit_code == exit_code and isinstance(made, agentrun.AgentrunError)
    again = pickle.loads(pickle.dumps(made))
    assert (type(again), str(again), again.detail) == (type(made), str(made), 7)


def test_importing_it_loads_neither_the_command_line_nor_anything_heavy() -> None:
    code = """
import sys, agentrun
agentrun.run, agentrun.MemoryStore, agentrun.Job
heavy = {"typer", "rich", "agentrun_cli", "tenacity", "pydantic", "filelock", "anyio"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)

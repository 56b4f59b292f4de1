from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

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
        "StaleResults",
        "Stop",
        "Summary",
        "TrustError",
        "UsageError",
        "arun",
        "current",
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
    made = getattr(agentrun, error)("where: what; what to do")
    made.resume_with = "agentrun resume job"
    assert made.exit_code == exit_code and isinstance(made, agentrun.AgentrunError)
    again = pickle.loads(pickle.dumps(made))
    assert (type(again), str(again), again.message) == (type(made), "where: what; what to do", made.message)
    assert again.resume_with == "agentrun resume job"


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (agentrun.JobError, {"where": "job.toml", "key": "run.timeout", "line": 7}),
        (agentrun.ItemsError, {"position": 3}),
        (agentrun.AgentError, {"traceback": "Traceback …"}),
        (agentrun.DiskError, {"errno": 28}),
        (agentrun.RunError, {"summary": agentrun.Summary("job", "r1", 3, {}, 0)}),
    ],
)
def test_what_an_error_knows_crosses_processes_too(error: Callable[..., Exception], attributes: dict[str, Any]) -> None:
    again = pickle.loads(pickle.dumps(error("where: what; what to do", **attributes)))
    assert str(again) == "where: what; what to do"
    assert {name: getattr(again, name) for name in attributes} == attributes


def test_the_exit_code_of_a_run_that_did_not_complete_is_the_runs() -> None:
    made = agentrun.RunError("job: 1 of 2 items wait for a person", summary=agentrun.Summary("job", "r1", 3, {}, 2))
    assert made.exit_code == 3 and pickle.loads(pickle.dumps(made)).exit_code == 3


def test_importing_it_loads_neither_the_command_line_nor_anything_heavy() -> None:
    code = """
import sys, agentrun
agentrun.run, agentrun.MemoryStore, agentrun.Job
heavy = {"typer", "rich", "agentrun_cli", "tenacity", "pydantic", "filelock", "anyio"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_summary_from_another_process_does_not_pass_for_one_without_failures() -> None:
    again = pickle.loads(pickle.dumps(agentrun.Summary("job", "r1", 1, {"failed": 1}, 1)))
    with pytest.raises(RuntimeError, match="comes from another process"):
        again.failures()

"""A pytest plugin for the gate: writes down each failure, and ends the run at the first failed assertion."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

VARIABLE = "AGENTRUN_GATE_REPORT"


@dataclass(frozen=True, slots=True)
class Noticed:
    test: str
    is_assertion: bool
    message: str


def read(report: Path) -> list[Noticed]:
    try:
        return [Noticed(**json.loads(line)) for line in report.read_text().splitlines()]
    except FileNotFoundError:
        return []


def pytest_exception_interact(node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object]) -> None:
    assert call.excinfo is not None
    error = call.excinfo.value
    # pytest-timeout fails a test as `pytest.fail` does.
    is_timeout = "pytest-timeout" in str(error)
    noticed = Noticed(
        node.nodeid,
        isinstance(error, AssertionError | pytest.fail.Exception) and not is_timeout,
        f"{type(error).__name__}: {error}"[:500],
    )
    with open(os.environ[VARIABLE], "a", encoding="utf-8") as report:
        report.write(json.dumps(asdict(noticed)) + "\n")
    if noticed.is_assertion:
        node.session.shouldfail = "an assertion failed"

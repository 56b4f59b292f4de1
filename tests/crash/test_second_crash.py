"""A second crash, while a launch recovers from the first or completes the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.inspection import record_history
from crash.model import Unlink
from crash.second import Crashes, completion_of
from crash.workload import Workload, scratch

ITEMS = 6


@pytest.fixture
def crashes() -> Iterator[Crashes]:
    with scratch() as path:
        yield Crashes(Workload(path / "work", ITEMS))


def test_a_power_cut_while_a_killed_run_recovers_loses_nothing(crashes: Crashes) -> None:
    history = record_history(crashes.workload)
    assert any(isinstance(one, Unlink) and "journal-1" in one.path for one in history), "no compaction"
    for found in crashes.kills(history):
        crashes.check(crashes.launch(found), found)
    print(crashes.states, "states")
    assert crashes.states > 500


def test_a_power_cut_while_a_run_recovers_from_a_power_cut_loses_nothing(crashes: Crashes) -> None:
    history = record_history(crashes.workload)
    for found in crashes.cuts(history):
        crashes.check(crashes.launch(found), found)
    print(crashes.states, "states")
    assert crashes.states > 500


def test_three_crashes_in_a_row_during_clean_completion_lose_nothing(crashes: Crashes) -> None:
    start, completion = completion_of(record_history(crashes.workload))
    for first in crashes.kills(completion, start):
        history = crashes.launch(first)
        crashes.check(history, first)
        for second in crashes.kills(history, first, by_name=True):
            crashes.check(crashes.launch(second), second)
    print(crashes.states, "states")
    assert crashes.states > 500

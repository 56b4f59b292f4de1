"""Crash states: every state of the disk that a power cut may leave, at every moment of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crash.inspection import Stage, distinct_states, record_history, recover, summary_of
from crash.model import Rename, Unlink, Write
from crash.workload import Workload, scratch

ITEMS = 20


@pytest.fixture
def workload() -> Iterator[Workload]:
    with scratch() as path:
        yield Workload(path / "work", ITEMS)


def test_every_state_that_a_power_cut_leaves_is_recovered_to_the_same_results(workload: Workload) -> None:
    history = record_history(workload)
    # The history has in it what it is to be about.
    assert any(isinstance(one, Unlink) and "journal-1" in one.path for one in history), "no compaction"
    assert any(isinstance(one, Rename) and "/runs/" in one.target for one in history), "no completion"
    assert any(isinstance(one, Write) and one.data.count(b"\n{") >= 2 for one in history), "no journal of three"
    states = distinct_states(history)
    print(len(states), "states")
    assert len(states) > 300
    stage = Stage(workload)
    for state, told, completed in states.values():
        try:
            recover(stage, state, told=told, completed=completed)
        except Exception as error:
            raise AssertionError(f"{summary_of(state)}: {type(error).__name__}: {error}") from error

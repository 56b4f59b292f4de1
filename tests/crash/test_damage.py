"""What was damaged or put back is noticed or recovered; results are never silently wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from crash.damage import STATE, cut, flip_bytes, journal_of, put_back, shows_its_age, snapshots
from crash.inspection import Stage, record_history
from crash.model import State
from crash.workload import Workload, scratch

ITEMS = 20


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[Workload, list[State]]]:
    with scratch() as path:
        workload = Workload(path / "work", ITEMS)
        yield workload, snapshots(record_history(workload))


def with_journal(found: list[State]) -> tuple[State, State]:
    """In the middle, with records in both places; and after the compaction."""
    both = [one for one in found if STATE in one and (path := journal_of(one)) and one[path]]
    last = [one for one in both if "state/job/journal-2.jsonl" in one]
    return both[len(both) // 4], last[0]


@pytest.mark.parametrize("moment", [0, 1], ids=["in the middle", "after a compaction"])
def test_any_flipped_byte_is_noticed_or_makes_no_difference(
    recorded: tuple[Workload, list[State]], moment: int
) -> None:
    workload, found = recorded
    state = with_journal(found)[moment]
    stage = Stage(workload)
    journal = journal_of(state)
    assert journal is not None
    assert all(flip_bytes(stage, state, STATE, (0x01, 0x20)))
    assert sum(flip_bytes(stage, state, journal, (0x01, 0x80))) > 1000


@pytest.mark.parametrize("moment", [0, 1], ids=["in the middle", "after a compaction"])
def test_a_file_cut_at_any_length_is_noticed_or_makes_no_difference(
    recorded: tuple[Workload, list[State]], moment: int
) -> None:
    workload, found = recorded
    state = with_journal(found)[moment]
    stage = Stage(workload)
    journal = journal_of(state)
    assert journal is not None
    assert all(cut(stage, state, STATE))
    assert sum(cut(stage, state, journal)) > 500


def test_an_older_copy_is_refused_or_recovered_to_the_right_results(recorded: tuple[Workload, list[State]]) -> None:
    workload, found = recorded
    stage = Stage(workload)
    for older, now in combinations(found, 2):
        is_refused = put_back(stage, now, STATE, older)
        assert is_refused or not shows_its_age(older, now), "an older state.json was taken for the newest"
        path = journal_of(older)
        if path is not None and path in now:
            put_back(stage, now, path, older)
    assert any(shows_its_age(older, now) for older, now in combinations(found, 2))

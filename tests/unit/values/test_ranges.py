from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentrun.values.ranges import NEWEST, Ranges


def of(indexes: set[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ranges


@settings(deadline=None)  # no timed tests
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60))))
def test_they_are_the_set_of_what_was_added_and_not_discarded(steps: list[tuple[bool, int]]) -> None:
    """61 positions have at most 31 ranges: none is dropped."""
    ranges, indexes = Ranges(), set[int]()
    for add, index in steps:
        if add and index not in indexes:
            ranges.add(index)
            indexes.add(index)
        elif not add:
            ranges.discard(index)
            indexes.discard(index)
    assert list(ranges) == of(indexes)


def test_only_the_newest_are_kept() -> None:
    ranges = Ranges()
    for index in range(0, 1000, 2):
        ranges.add(index)
    assert list(ranges) == [[index, index] for index in range(1000 - 2 * NEWEST, 1000, 2)]


def test_touching_a_range_makes_it_new() -> None:
    ranges = Ranges()
    for index in range(0, 2 * NEWEST, 2):
        ranges.add(index)
    ranges.add(1)
    ranges.add(500)
    assert [0, 2] in list(ranges) and [500, 500] in list(ranges) and len(list(ranges)) == NEWEST


def test_ranges_meet() -> None:
    ranges = Ranges()
    ranges.add(0, 3)
    ranges.add(5, 9)
    ranges.add(4)
    assert list(ranges) == [[0, 9]]
    ranges.discard(5)
    assert list(ranges) == [[0, 4], [6, 9]]

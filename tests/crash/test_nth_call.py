"""The n-th call to the disk fails, for every n until a run succeeds."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from agentrun.errors import CheckpointError
from crash.disks import Call, ShortDisk
from crash.faults import CALLS_AND_ERRORS, fail_at, starting_points
from crash.inspection import Stage
from crash.workload import FakeAgent, Workload, scratch

ITEMS = 20


@pytest.fixture
def workload() -> Iterator[Workload]:
    with scratch() as path:
        workload = Workload(path / "work", ITEMS)
        workload.lay_out()
        yield workload


@pytest.mark.parametrize(
    ("call", "number"),
    CALLS_AND_ERRORS,
    ids=lambda value: value if isinstance(value, str) else errno.errorcode[value],
)
def test_after_a_failed_call_nothing_is_acknowledged_and_the_next_launch_is_right(
    workload: Workload, call: Call, number: int
) -> None:
    count = 0
    stage = Stage(workload)
    for _, state in list(starting_points(workload)):
        n = 1
        while fail_at(stage, state, call, n, number):
            n += 1
        count += n - 1
    print(count, "faults")
    assert count >= 3


def test_a_short_write_is_continued(workload: Workload) -> None:
    try:
        code = workload.launch(FakeAgent(), disk=ShortDisk()).exit_code
    except CheckpointError as error:
        pytest.fail(f"half of a write was taken for the whole: {error}")
    assert code == 0
    assert workload.output.read_bytes() == workload.results

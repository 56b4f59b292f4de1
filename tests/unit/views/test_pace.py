from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.store.port import HistoryEvent, Reader
from agentrun.values.clock import now_seconds, time_text
from agentrun.views.pace import Pace, pace_of, read_pace


@pytest.mark.parametrize(
    ("points", "settled", "per_minute"),
    [
        ([(600.0, 0), (90.0, 10), (30.0, 11)], 13, 2.0),  # of the last minute, or a little more
        ([(1200.0, 0), (300.0, 3), (70.0, 4)], 5, 0.4),  # slow items: of as long as two took
        ([(600.0, 4)], 5, 0.1),  # one since the launch began
        ([(0.5, 0)], 20, 2400.0),
    ],
)
def test_the_pace_is_that_of_the_last_minute_or_of_two_items(
    points: list[tuple[float, int]], settled: int, per_minute: float
) -> None:
    pace = pace_of(points, settled=settled, left=12)
    assert pace is not None and pace.per_second * 60 == pytest.approx(per_minute)
    assert pace.left_seconds == pytest.approx(12 / pace.per_second)


@pytest.mark.parametrize("points", [[], [(60.0, 5)], [(0.0, 1)]])
def test_without_progress_there_is_none(points: list[tuple[float, int]]) -> None:
    assert pace_of(points, settled=5, left=3) is None


def test_the_end_is_told_as_a_time() -> None:
    shown = Pace(0.5, 3600.0).as_json()
    assert (shown["per_minute"], shown["left_seconds"]) == (30.0, 3600.0) and shown["ends_at"].endswith("Z")


class OneCheckpoint:
    """A reader whose log has one checkpoint, of a minute ago, with nothing settled."""

    def history(self, *, recent: bool = False) -> Iterator[HistoryEvent]:
        at = time_text(now_seconds() - 60)
        yield HistoryEvent(at=at, event="checkpoint", launch=1, last_completed=-1, settled=0)


def test_items_that_only_leaves_for_another_launch_are_not_waited_for() -> None:
    context = RunContext(launches=1, date="2026-01-01", others=90)
    checkpoint = Checkpoint(job="j", run_id="r", total=100, counts={"done": 6, "pending": 94}, context=context)
    pace = read_pace(cast(Reader, OneCheckpoint()), checkpoint)
    assert pace is not None
    assert pace.left_seconds * pace.per_second == pytest.approx(4)

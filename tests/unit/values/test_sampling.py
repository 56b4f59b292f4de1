"""A sample that is spread over a list."""

from __future__ import annotations

import pytest

from agentrun.values.sampling import spread


@pytest.mark.parametrize("total", [21, 40, 57, 1000])
def test_one_of_each_part_is_drawn(total: int) -> None:
    drawn = spread(total, 20, "seed")
    edges = [part * total // 20 for part in range(21)]
    assert all(first <= at < last for at, first, last in zip(drawn, edges, edges[1:], strict=False))
    assert len(drawn) == 20


def test_the_seed_decides_and_every_item_can_be_drawn() -> None:
    assert spread(1000, 20, "a") == spread(1000, 20, "a") != spread(1000, 20, "b")
    assert {at for seed in range(200) for at in spread(40, 20, str(seed))} == set(range(40))


@pytest.mark.parametrize("total", [0, 1, 20])
def test_where_there_are_no_more_all_are_drawn(total: int) -> None:
    assert spread(total, 20, "seed") == list(range(total))

"""From a pilot to the rest: how often the truth is in the range."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from agentrun.money.estimate import Sample, count_range, estimate, student_quantile, total_range
from agentrun.money.usage import Usage
from agentrun.values.sampling import spread

ITEMS, PILOT, SEEDS = 200, 20, 200


def log_normal(sigma: float) -> Callable[[random.Random], float]:
    return lambda draw: draw.lognormvariate(0, sigma)


def two_kinds(draw: random.Random) -> float:
    """One item in ten is eight times as long."""
    return draw.lognormvariate(0, 0.4) * (8 if draw.random() < 0.1 else 1)


@pytest.mark.parametrize(
    ("draw", "least"),
    [(log_normal(0.6), 0.8), (log_normal(1.0), 0.8), (two_kinds, 0.72)],
    ids=["sigma-0.6", "sigma-1.0", "two-kinds"],
)
def test_the_truth_is_in_the_range_often_enough(draw: Callable[[random.Random], float], least: float) -> None:
    hits = 0
    for seed in range(SEEDS):
        source = random.Random(seed)
        values = [draw(source) for _ in range(ITEMS)]
        pilot = spread(ITEMS, PILOT, str(seed))
        found = total_range([values[at] for at in pilot], ITEMS - PILOT, seed=str(seed))
        truth = sum(values) - sum(values[at] for at in pilot)
        hits += found.low <= truth <= found.high
        # A range that says nothing would always hold the truth.
        assert found.high < 12 * found.low
    assert hits >= least * SEEDS


def samples(count: int, *, failed: int = 0, cost: float | None = 0.1, seconds: float = 2.0) -> list[Sample]:
    used = Usage(cost=cost, input_tokens=100) if cost is not None else None
    kinds = ["failed"] * failed + ["done"] * (count - failed)
    return [Sample(kind, seconds, used, "bad weather" if kind == "failed" else "") for kind in kinds]


def test_items_that_are_all_the_same_have_an_exact_estimate() -> None:
    found = estimate(samples(20), rest=180, concurrency=4)
    assert found.seconds is not None and found.cost is not None and found.tokens is not None
    assert (found.seconds.low, found.seconds.likely, found.seconds.high) == (90.0, 90.0, 90.0)
    assert found.cost.likely == pytest.approx(18.0) and found.tokens.high == 18_000
    assert (found.items, found.done, found.failed, found.rest) == (20, 20, 0, 180)


def test_the_time_is_for_what_runs_at_once_and_no_faster_than_the_rate() -> None:
    few = estimate(samples(20), rest=3, concurrency=64).seconds
    assert few is not None and few.likely == 2.0
    slow = estimate(samples(20), rest=180, concurrency=64, seconds_between=1.0).seconds
    assert slow is not None and slow.low == 180.0


def test_what_nobody_reported_is_not_estimated() -> None:
    found = estimate(samples(20, cost=None), rest=180, concurrency=4)
    assert found.cost is None and found.tokens is None and found.seconds is not None


def test_the_same_pilot_gives_the_same_estimate() -> None:
    source = random.Random(1)
    drawn = [Sample("done", source.lognormvariate(0, 1), Usage(cost=source.random())) for _ in range(20)]
    assert estimate(drawn, rest=50, concurrency=2, seed="a") == estimate(drawn, rest=50, concurrency=2, seed="a")


def test_fewer_items_scatter_more_than_many() -> None:
    source = random.Random(1)
    values = [source.lognormvariate(0, 0.6) for _ in range(20)]
    few, many = total_range(values, 3), total_range(values, 3000)
    assert few.high / few.low > 1.5 * many.high / many.low


def test_costs_of_nothing_are_no_obstacle() -> None:
    found = total_range([0.0] * 10 + [1.0] * 10, 100, seed="s")
    assert 0 <= found.low < found.likely == 50 < found.high


def test_no_failure_in_a_pilot_is_no_promise() -> None:
    assert count_range(0, 20, 180).low == 0 and 15 <= count_range(0, 20, 180).high <= 30
    some = count_range(2, 20, 180)
    assert some.low < 18 == some.likely < some.high < 180


@pytest.mark.parametrize(("freedom", "right"), [(3, 2.353), (4, 2.132), (9, 1.833), (19, 1.729), (99, 1.660)])
def test_the_quantiles_are_those_of_the_tables(freedom: int, right: float) -> None:
    assert student_quantile(freedom) == pytest.approx(right, rel=0.01)


@pytest.mark.parametrize(
    ("pilot", "why"),
    [
        (samples(4), "only 4 of 4 items are done, too few for an estimate"),
        (samples(20, failed=5), "5 of 20 items failed, too many for an estimate"),
    ],
)
def test_a_bad_pilot_gives_causes_in_place_of_an_estimate(pilot: list[Sample], why: str) -> None:
    found = estimate(pilot, rest=100, concurrency=1)
    assert found.why_not == why
    assert found.seconds is None and found.cost is None and found.failures is None
    assert [(one.cause, one.count) for one in found.causes] == ([("bad weather", 5)] if found.failed else [])


def test_a_fifth_may_fail() -> None:
    assert not estimate(samples(20, failed=4), rest=100, concurrency=1).why_not

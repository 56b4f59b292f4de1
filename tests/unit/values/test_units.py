from __future__ import annotations

from typing import Any

import pytest

from agentrun.values.text import quoted
from agentrun.values.units import Rate, format_duration, parse_allowance, parse_duration, parse_rate


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("1m 30s", 90),
        ("1.5h", 5400),
        ("45", 45),
        (3, 3),
        (0.25, 0.25),
        (0, 0),
        ("0s", 0),
        ("2min", 120),
    ],
)
def test_a_duration_is_read_as_seconds(written: Any, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "written",
    ["2 parsecs", "", "  ", "s", "-3s", "1s2h", -1, True, None, [], float("nan"), float("inf"), "\u0661s"],
)
def test_what_is_no_duration_is_refused_with_what_was_found(written: Any) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(written)
    assert str(caught.value) == f'is {quoted(written)}; write a duration such as "90s", "2m" or "1h30m"'


@pytest.mark.parametrize("written", [10**400, "9" * 400, "100000h"])
def test_an_endless_duration_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match="write a duration"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "0.5s"),
        (0, "0s"),
        (3, "3s"),
        (12, "12s"),
        (59.7, "1m00s"),
        (185, "3m05s"),
        (3599.8, "1h00m"),
        (3725, "1h02m"),
        (86399, "1d00h"),
        (100000, "1d04h"),
        (9.97, "10s"),
        (-1, "0s"),
    ],
)
def test_a_duration_is_shown_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("written", "total", "allowed"),
    [
        (2, 100, 2),
        ("2", 100, 2),
        ("5%", 200, 10),
        ("5%", 19, 0),
        ("0.29%", 10000, 29),
        ("100%", 7, 7),
        (0, 9, 0),
    ],
)
def test_an_allowance_is_a_count_or_a_share_of_all(written: Any, total: int, allowed: int) -> None:
    assert parse_allowance(written).of(total) == allowed


@pytest.mark.parametrize("written", [-1, "-1", "101%", "%", "x", 1.5, True, None])
def test_what_is_no_allowance_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match='write a number of items such as 2, or a share of all such as "5%"'):
        parse_allowance(written)


def test_a_rate_is_a_count_per_time() -> None:
    assert parse_rate("60/min") == Rate(60, 60)
    assert parse_rate("5 / s") == Rate(5, 1)
    assert parse_rate("1000/hour") == Rate(1000, 3600)


@pytest.mark.parametrize("written", ["60", "0/min", "60/day", 60, "-1/s", None])
def test_what_is_no_rate_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match='write a rate such as "60/min"'):
        parse_rate(written)

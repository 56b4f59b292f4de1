"""Times to stop at: the next time that the clock shows it, whatever the clock does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from datetime import time as time_of_day

import pytest

from agentrun.values.until import moment_words, parse_until


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In 2026 the clock is set forward on 29 March, from 2 to 3, and back on 25 October, from 3 to 2."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("written", "now", "stops"),
    [
        ("07:00", "2026-11-16T21:00", "2026-11-17T06:00"),
        ("7:00", "2026-11-17T05:59", "2026-11-17T06:00"),
        # Past today, and now itself: tomorrow.
        ("07:00", "2026-11-17T06:01", "2026-11-18T06:00"),
        ("07:00", "2026-11-17T06:00", "2026-11-18T06:00"),
        ("23:30:15", "2026-11-17T22:00", "2026-11-17T22:30:15"),
        ("2026-11-17T07:00", "2026-11-10T00:00", "2026-11-17T06:00"),
        ("2026-11-17 07:00", "2026-11-10T00:00", "2026-11-17T06:00"),
        ("2026-11-17T07:00Z", "2026-11-10T00:00", "2026-11-17T07:00"),
        ("2026-11-17T07:00+05:00", "2026-11-10T00:00", "2026-11-17T02:00"),
        # Nights in which the clock is changed are an hour shorter or longer.
        ("07:00", "2026-03-28T21:00", "2026-03-29T05:00"),
        ("07:00", "2026-10-24T20:00", "2026-10-25T06:00"),
        # 02:30 is not there, or there twice.
        ("02:30", "2026-03-28T23:00", "2026-03-29T01:30"),
        ("02:30", "2026-10-24T23:00", "2026-10-25T00:30"),
        ("02:30", "2026-10-25T00:45", "2026-10-25T01:30"),
        ("02:30", "2026-10-25T01:45", "2026-10-26T01:30"),
    ],
)
def test_it_is_the_next_time_that_the_clock_shows_it(berlin: None, written: str, now: str, stops: str) -> None:
    assert parse_until(written).after(utc(now)) == utc(stops)


def test_a_date_that_has_passed_does_not_come_again(berlin: None) -> None:
    assert parse_until("2026-11-17T07:00").after(utc("2026-11-17T06:00")) is None


@pytest.mark.parametrize("value", ["", "7", "25:00", "07:60", "soon", "2026-11-17", "2026-13-01T07:00", 7, None, True])
def test_what_is_no_time_is_refused_with_what_would_do(value: object) -> None:
    with pytest.raises(ValueError, match='write a time such as "07:00", or "2026-11-17T07:00"'):
        parse_until(value)


def test_times_of_toml_need_no_quotes(berlin: None) -> None:
    now = utc("2026-11-16T21:00")
    assert parse_until(time_of_day(7, 0)).after(now) == utc("2026-11-17T06:00")
    assert parse_until(datetime(2026, 11, 17, 7, 0)).after(now) == utc("2026-11-17T06:00")  # noqa: DTZ001
    with pytest.raises(ValueError, match="write a time"):
        parse_until(time_of_day(7, 0, tzinfo=UTC))


def test_a_moment_is_named_by_its_day(berlin: None) -> None:
    now = utc("2026-11-16T21:00")
    assert moment_words(now + 60, now) == "22:01"
    assert moment_words(utc("2026-11-17T06:00"), now) == "tomorrow 07:00"
    assert moment_words(utc("2026-11-19T06:00:05"), now) == "2026-11-19 07:00:05"

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agentrun.values.clock import now_seconds, now_text


def test_the_time_as_text_is_that_of_the_system_to_the_millisecond() -> None:
    before = datetime.now(UTC)
    told = [now_text() for _ in range(2000)]
    after = datetime.now(UTC)
    assert told == sorted(told) and all(len(text) == 24 and text.endswith("Z") for text in told)
    first, last = (datetime.fromisoformat(text) for text in (told[0], told[-1]))
    assert before - timedelta(milliseconds=1) <= first <= last <= after


def test_the_time_in_seconds_has_three_decimals() -> None:
    assert all(seconds == round(seconds, 3) for seconds in (now_seconds() for _ in range(200)))

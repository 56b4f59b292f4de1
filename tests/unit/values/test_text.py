from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from agentrun.values.text import is_unicode, quoted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2 parsecs", '"2 parsecs"'),
        ("é", '"é"'),
        (3, "3"),
        (True, "true"),
        (None, "none"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (float("nan"), "NaN"),
        (date(2026, 5, 4), "2026-05-04"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_a_value_is_quoted_as_json_or_as_it_calls_itself(value: Any, text: str) -> None:
    assert quoted(value) == text


def test_what_is_quoted_is_cut_at_the_limit() -> None:
    assert quoted("x" * 78) == f'"{"x" * 78}"'
    assert quoted("x" * 79) == f'"{"x" * 78}…'
    assert quoted("x" * 79, limit=10) == '"xxxxxxxx…'


def test_a_value_that_holds_itself_is_quoted() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert quoted(loop) == "[[...]]"


def test_a_lone_surrogate_is_not_unicode() -> None:
    assert is_unicode("naïve 🎉")
    assert not is_unicode("a\udcff")

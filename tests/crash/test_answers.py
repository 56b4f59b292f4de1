"""Answers are taken in exactly once, whoever is at work and whoever is killed meanwhile; the first one wins."""

from __future__ import annotations

import pytest

from crash.command_line import apart


@pytest.mark.parametrize("seed", [1, 2])
def test_of_answers_posted_at_any_time_each_is_taken_in_exactly_once(seed: int) -> None:
    """50 while a runner works and 50 while none does, with a kill after each five, and others' answers in between."""
    found = apart("crash.answers", "post_and_kill", seed)
    assert found["answers"] == 100 and found["kills"] == 10 and found["duplicates"] >= 40
    assert found["taken"] == [1] * 100 and found["records"] == 100
    assert found["taken_at_work"] == 25
    assert found["left"] == 0, "what does not apply is dropped"
    assert found["results"], "the results are not those of the first answers"

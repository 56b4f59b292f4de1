"""What people post is taken in exactly once, whoever is at work and whoever is killed meanwhile."""

from __future__ import annotations

import pytest

from crash.harness import run_apart


@pytest.mark.parametrize("seed", [1, 2])
def test_of_answers_posted_at_any_time_each_is_taken_in_exactly_once(seed: int) -> None:
    """50 while a runner works and 50 while none does, with a kill after each five; of others' answers, and of
    such to other questions, none is."""
    found = run_apart("answers", kills=10, seed=seed)
    assert not found["faults"], found["faults"]
    assert found["answers"] == 100 and found["kills"] == 10 and found["duplicates"] >= 50
    assert found["taken"] == [1] * 100 and found["records"] == 100
    assert found["taken_at_work"] == 25
    assert found["left"] == 0, "what does not apply is dropped"
    assert found["results"], "the results are not those of the first answers"


def test_what_was_begun_anew_stays_so_when_the_journal_is_compacted_and_the_launch_killed() -> None:
    found = run_apart("anew", kills=2)
    assert not found["faults"], found["faults"]
    assert found["sizes"][1] < found["sizes"][0] / 2, "nothing was compacted"
    assert found["runs"] == 1
    assert found["outputs"] == [4] * 4, "the result that was given up is back"

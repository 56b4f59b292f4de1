"""The newcomer's path, in each of the five ways; a failure says which seed it had."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash.harness import seeded
from needs import require_program
from newcomer.path import walk
from newcomer.ways import WAYS


@pytest.mark.parametrize("name", WAYS)
def test_killed_once_it_ends_with_59_results_in_order_and_one_failure_and_pays_for_what_was_in_flight(
    name: str, tmp_path: Path
) -> None:
    if name == "curl":
        require_program("curl", "jq")
    with seeded(random.randrange(10**6)) as chance:
        told = walk(WAYS[name], tmp_path, chance)
    print(told)
    assert (told.results, told.failures) == (59, 1) and told.paid_twice <= told.concurrency

"""`kill -9` of workers and runners of a job on a Dask cluster; the long set has 20 runs with more kills in each."""

from __future__ import annotations

from cluster.kills import run_killed
from needs import require_linux, require_module


def test_after_kills_of_workers_and_runner_the_results_are_right_and_nothing_was_done_twice() -> None:
    require_linux()
    require_module("distributed", extra="dask")
    run_killed(7, items=40, slot_kills=2, runner_kills=1)

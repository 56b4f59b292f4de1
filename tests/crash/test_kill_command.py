"""`kill -9` at random moments, through the real command: nothing finished is lost or run again."""

from __future__ import annotations

import random
import subprocess
import time

import pytest

from crash.command_line import AGENTS, Long, Place, again_and_again, place, seeded
from waiting import PATIENCE_SECONDS, eventually, happens_before_exit

KILLS = {
    ("async", 1): 38,
    ("async", 16): 38,
    ("thread", 1): 30,
    ("thread", 16): 30,
    ("command", 1): 24,
    ("command", 16): 20,
    ("process", 1): 14,
    ("process", 16): 6,
}
"""200, fewer where a launch is dear."""
STARTUP_SECONDS = 0.4


def wait_for_a_moment(job: Place, process: subprocess.Popen[bytes], rng: random.Random) -> None:
    """Wait for a moment to kill at: while it starts, some attempts on, or around the completion."""
    chance = rng.random()
    if chance < 0.25:
        time.sleep(rng.uniform(0, STARTUP_SECONDS))
    elif chance < 0.9:
        wanted = job.begun() + rng.randint(1, 25)
        happens_before_exit(process, lambda: job.begun() >= wanted, "attempts")
        time.sleep(rng.uniform(0, 0.004))
    else:
        # The attempts that are left, at least, if nothing is in flight.
        wanted = job.begun() + job.total - len(job.done())
        happens_before_exit(process, lambda: job.begun() >= wanted, "attempts")
        time.sleep(rng.uniform(0, 0.02))


def check_calls(job: Place, done_after: dict[int, set[int]]) -> None:
    """`done_after`: what was finished when each launch that was killed had died."""
    finished: set[int] = set()
    for launch, begun in sorted(job.calls().items()):
        assert len(begun) == len(set(begun)), f"launch {launch} ran an item twice: {begun}"
        again = finished & set(begun)
        assert not again, f"launch {launch} ran finished items again: {sorted(again)}"
        if launch in done_after:
            lost = finished - done_after[launch]
            assert not lost, f"launch {launch} lost finished items: {sorted(lost)}"
            finished = done_after[launch]
            extra = set(begun) - finished
            assert len(extra) <= job.concurrency, f"launch {launch} left {sorted(extra)} for another attempt"


def kill_a_job(rng: random.Random, *, kind: str, concurrency: int, most: int) -> int:
    """Kill and resume one job until it is complete; returns the number of kills, at most so many."""
    total = {"command": 60, "process": 120}.get(kind, 200)
    with place(kind=kind, total=total, concurrency=concurrency) as job:
        done_after: dict[int, set[int]] = {}
        while not job.is_finished:
            process = job.start()
            if len(done_after) < most:
                wait_for_a_moment(job, process, rng)
                process.kill()
            code = process.wait(timeout=PATIENCE_SECONDS)
            if code == -9:
                done_after[job.launches] = job.done()
            else:
                assert code == 0, job.said[-2000:]
        eventually(lambda: not job.survivors(), "nothing is left of the killed launches")
        job.check_results()
        check_calls(job, done_after)
        return len(done_after)


@pytest.mark.parametrize(("kind", "concurrency"), KILLS)
def test_after_any_kills_the_results_are_those_of_an_undisturbed_run(kind: str, concurrency: int) -> None:
    wanted, killed, jobs = KILLS[kind, concurrency], 0, 0
    while killed < wanted:
        with seeded(f"kill {kind} {concurrency} {jobs}") as rng:
            killed += kill_a_job(rng, kind=kind, concurrency=concurrency, most=wanted - killed)
        jobs += 1


@pytest.mark.parametrize("kind", AGENTS)
def test_an_undisturbed_run_writes_what_we_expect(kind: str) -> None:
    with place(kind=kind, total=20, concurrency=4) as job:
        assert job.finish() == 0
        job.check_results()
        assert sorted(job.calls()[1]) == list(range(20))


def _one(rng: random.Random) -> int:
    kind, concurrency = rng.choice(list(KILLS))
    return kill_a_job(rng, kind=kind, concurrency=concurrency, most=12)


LONG: dict[str, Long] = {"kill -9 of the real command": again_and_again(_one)}

"""Adaptive speed at simulated servers: how much of what a server allows is used, and nothing fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.item import Item
from agentrun.launch.speed import Speed
from agentrun.runs.units import Ended, Work
from agentrun.values.clock import seconds_until
from unit.launch.simulated import BEGAN, Bucket, Crowded, Server, Shared, Window, refusal, run_batch

SLOW = math.exp(0.7)
SEEDS = range(5)
SERVERS: dict[str, tuple[Callable[[int], Server], int, float]] = {
    # The server, the items, and the seconds that its limit alone takes.
    "20 a second": (Bucket, 500, 24.0),
    "20 a second, without a header": (lambda seed: Bucket(seed, asks=False), 500, 24.0),
    "20 in each second": (Window, 500, 24.0),
    "1,200 in each minute": (lambda seed: Window(seed, most=1200, window=60.0), 4000, 180.0),
    "1,200 in each minute, without a header": (
        lambda seed: Window(seed, most=1200, window=60.0, asks=False),
        4000,
        180.0,
    ),
    "8 at a time": (Crowded, 500, 0.0),
    "8 at a time, slowly": (lambda seed: Crowded(seed, seconds=SLOW), 500, 0.0),
}


def share_used(make: Callable[[int], Server], items: int, seconds: float, folder: Path) -> float:
    took = possible = 0.0
    for seed in SEEDS:
        server = make(seed)
        night = run_batch(server, folder, items=items)
        assert night.counts["done"] == items, f"seed {seed}: {night.counts}"
        took += night.seconds
        possible += seconds + server.mean_seconds if seconds else items / 8 * server.mean_seconds
    return possible / took


@pytest.mark.parametrize("name", SERVERS)
def test_most_of_what_a_server_allows_is_used_and_nothing_fails(name: str, tmp_path: Path) -> None:
    assert share_used(*SERVERS[name], tmp_path) >= 0.85


def test_calls_that_take_longer_than_the_window_are_slower(tmp_path: Path) -> None:
    assert share_used(lambda seed: Window(seed, seconds=SLOW), 500, 24.0, tmp_path) >= 0.75


@pytest.mark.parametrize("asks", [True, False])
def test_a_server_that_accepts_few_at_once_is_not_taken_for_one_that_accepts_few_a_second(
    asks: bool, tmp_path: Path
) -> None:
    assert share_used(lambda seed: Bucket(seed, holds=2.0, asks=asks), 500, 25.0, tmp_path) >= 0.75


def test_items_that_have_not_begun_do_not_lower_the_first_pace() -> None:
    now = BEGAN
    run = SimpleNamespace(
        ledger=SimpleNamespace(counts={"done": 0}), context=None, job=SimpleNamespace(concurrency=32), keepers=[]
    )
    speed = Speed(run, clock=lambda: now, wall_clock=lambda: now, tell=lambda words: None)  # type: ignore[arg-type]
    in_flight = {slot: Work(slot, Item(slot, f"k{slot}", line=""), began=BEGAN + 0.3) for slot in range(24)}
    in_flight |= {slot: Work(slot, Item(slot, f"k{slot}", line="")) for slot in range(24, 32)}
    speed.slots = SimpleNamespace(in_flight=in_flight, set_width=lambda width: None, surplus=0)  # type: ignore[assignment]
    now, run.ledger.counts["done"] = BEGAN + 0.5, 40
    ended = Ended("failed", failure=refusal(429, 1.0).failure)
    for row in range(4):
        speed.refuse(row, ended, BEGAN + 0.3, running=24 - row)
    # 64 have begun, of which 4 were refused, in the second that is the least.
    assert speed.gate is not None and speed.gate.throttle.pace == pytest.approx(0.9 * (64 - 4))


def test_random_refusals_do_not_slow_everybody_down(tmp_path: Path) -> None:
    adapted = [run_batch(Shared(seed), tmp_path) for seed in SEEDS]
    retried = [run_batch(Shared(seed), tmp_path, adapt=False, retries=50) for seed in SEEDS]
    assert all(night.counts["done"] == 500 for night in adapted)
    assert sum(night.seconds for night in adapted) <= 3 * sum(night.seconds for night in retried)


@pytest.mark.parametrize("asked", [None, 20.0])
def test_a_server_that_takes_nothing_for_15_minutes_has_a_quota(tmp_path: Path, asked: float | None) -> None:
    class Shut(Server):
        def allows(self) -> tuple[bool, float | None]:
            return self.now < BEGAN + 60, asked

    night = run_batch(Shut(), tmp_path, items=50_000, concurrency=8)
    assert night.stopped is not None and night.stopped.exit_code == 75
    assert "nothing was accepted for 15m" in night.stopped.text
    assert night.counts["failed"] == 0 and 960 <= night.seconds <= 1100
    assert seconds_until(night.stopped.resume_at) > 800


def test_calls_of_20_minutes_are_no_quota(tmp_path: Path) -> None:
    night = run_batch(Crowded(seconds=1200.0, spread=0.1, most=2), tmp_path, items=8, concurrency=4)
    assert night.stopped is None and night.counts["done"] == 8


@pytest.mark.parametrize("kind", [Bucket, Crowded])
def test_nothing_that_waits_to_be_let_in_begins_after_the_launch_has_stopped(
    tmp_path: Path, kind: type[Bucket | Crowded]
) -> None:
    class Locked(kind):  # type: ignore[valid-type, misc]
        is_over, late = False, 0

        async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
            self.late += self.is_over
            if self.accepted < 100:
                outcome: Outcome = await super().call(attempt, channel)
                return outcome
            self.is_over = True
            return refusal(401, None)

    server = Locked()
    night = run_batch(server, tmp_path)
    assert night.stopped is not None and night.stopped.exit_code == 4 and server.refused
    assert server.is_over and server.late == 0
    assert night.counts["failed"] == 0 and night.counts["done"] < 200

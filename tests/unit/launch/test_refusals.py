"""What a refusal does to a launch, at simulated servers: when nothing may begin, who waits, what is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome, addressed
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Used
from agentrun.checkpoint.checkpoint import Speed
from agentrun.money.usage import Reported
from unit.launch.bench import failing
from unit.launch.simulated import BEGAN, Bucket, Crowded, Server, refusal, run_batch


class Closing(Server):
    """Takes 10 s for what it accepts, the first 8; then it asks everybody to wait for a minute. At 10 s the key is
    rejected."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[float] = []

    async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
        self.called.append(self.now - BEGAN)
        if len(self.called) > 8:
            return refusal(self.status, 60.0)
        await asyncio.sleep(10.0)
        return failing("Stop")


def test_nothing_begins_after_a_stop_although_it_waits_to_be_let_in(tmp_path: Path) -> None:
    server = Closing()
    night = run_batch(server, tmp_path, items=100, concurrency=32)
    assert night.stopped is not None and night.stopped.exit_code == 4
    assert max(server.called) < 10 and night.seconds < 11


@pytest.mark.parametrize("make", [Bucket, Crowded])
def test_items_that_give_way_count_once_towards_the_limit(make: type[Server], tmp_path: Path) -> None:
    night = run_batch(make(), tmp_path, items=300, concurrency=64, limit=64)
    assert night.counts["done"] == 64 and night.stopped is not None and night.stopped.by == "limit"


@pytest.mark.parametrize("concurrency", [4, 32])
def test_running_names_no_new_item_beyond_what_may_be_in_flight(concurrency: int, tmp_path: Path) -> None:
    night = run_batch(Crowded(), tmp_path, items=300, concurrency=concurrency)
    assert night.counts["done"] == 300 and not night.store.too_wide


def test_a_speed_that_was_found_before_holds_from_the_first_checkpoint_on(tmp_path: Path) -> None:
    night = run_batch(Crowded(), tmp_path, items=100, speed=Speed(at=BEGAN - 60, number=5))
    assert night.counts["done"] == 100 and night.store.named[0] == 5


class Hurried(Server):
    """Refuses everything for a minute, and asks to try again at once."""

    status = 503

    def allows(self) -> tuple[bool, float | None]:
        return self.now > BEGAN + 60, 0.0


def test_a_wait_of_no_time_is_no_invitation_to_try_without_end(tmp_path: Path) -> None:
    server = Hurried()
    night = run_batch(server, tmp_path, items=20, concurrency=4)
    assert night.counts["done"] == 20 and server.refused < 60


class Long(Server):
    """Each item takes 20 minutes; one attempt in two is refused at its end."""

    async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
        await asyncio.sleep(1200)
        return Outcome("done", b'"yes"') if attempt.refused else refusal(429, None)


def test_items_that_take_long_and_are_refused_at_their_end_are_no_quota(tmp_path: Path) -> None:
    night = run_batch(Long(), tmp_path, items=3, concurrency=1)
    assert night.stopped is None and night.counts["done"] == 3


class Costly(Server):
    """Costs a dollar before it refuses; some are done for a dollar."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
        self.calls += 1
        await addressed(attempt.id, channel)(Used(Reported(cost=1.0)))
        await asyncio.sleep(1)
        return Outcome("done", b'"yes"') if attempt.item.index < 3 else refusal(429, None)


def test_a_refused_attempt_is_made_again_only_within_the_budget(tmp_path: Path) -> None:
    server = Costly()
    night = run_batch(server, tmp_path, items=10, concurrency=1, budget=6.0)
    assert night.stopped is not None and night.stopped.by == "budget" and server.calls == 6


class Mixed(Server):
    """Loads: refuses without a time and asks to wait, in turns, for half a minute."""

    asked = 0

    async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
        await asyncio.sleep(0.1)
        if self.now > BEGAN + 30:
            return Outcome("done", b'"yes"')
        self.asked += 1
        if self.asked % 2:
            return refusal(503, 1.0)
        return Outcome("failed", failure=Failure("exception", "loading", status=503, server="here:1"))


def test_a_server_that_asks_to_wait_is_not_down(tmp_path: Path) -> None:
    night = run_batch(Mixed(), tmp_path, items=20, concurrency=2, retries=50)
    assert night.stopped is None and night.counts["done"] == 20

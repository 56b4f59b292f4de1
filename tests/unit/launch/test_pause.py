"""Waiting for a quota in place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import LONGEST_WAIT_SECONDS, Failure
from agentrun.checkpoint.checkpoint import Checkpoint, Paused
from agentrun.checkpoint.record import Record
from agentrun.errors import BusyError, LaterError
from agentrun.events import Pausing, Retrying
from agentrun.launch.launch import Launch
from agentrun.launch.pause import AGAIN_MOST_SECONDS, AGAIN_SECONDS, LOOK_SECONDS, Bounds, pause_until
from agentrun.launch.stopping import StopReason
from unit.launch.bench import Died, FakeExecutor, Hooked, Script, World, answer, failing, names
from unit.launch.test_people import asking, post, reply
from unit.launch.test_stopped import stopped
from waiting import eventually_on_loop

BEGAN = 1_900_000_000.0
"""In 2030, when nobody runs this."""
HOUR = 3600.0


class Clock:
    """A wall clock that moves only while somebody sleeps."""

    def __init__(self, world: World, *, holds: bool = False) -> None:
        self.now = BEGAN
        self.slept: list[float] = []
        self.goes = asyncio.Event()
        if not holds:
            self.goes.set()
        world.wall_clock, world.sleep = lambda: self.now, self.sleep

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.goes.wait()
        self.now += seconds
        await asyncio.sleep(0)


def text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def quota(resume_at: float) -> Outcome:
    return failing("Stop", resume_at=text(resume_at))


class Provider:
    """Accepts so many items, then no more until its quota is renewed; again and again."""

    def __init__(self, clock: Clock, accepts: int, *, every: float = 5 * HOUR) -> None:
        self._clock, self._accepts, self._every = clock, accepts, every
        self._left, self._renewed_at = accepts, clock.now + every
        self.refused = 0

    async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
        if self._clock.now >= self._renewed_at:
            self._left, self._renewed_at = self._accepts, self._renewed_at + self._every
        if not self._left:
            self.refused += 1
            return quota(self._renewed_at)
        self._left -= 1
        return await answer(attempt, channel)


def pauses(world: World) -> list[str]:
    return [event.until for event in world.events if isinstance(event, Pausing)]


async def paused(world: World) -> None:
    await eventually_on_loop(lambda: pauses(world), "it pauses")


def test_a_launch_waits_for_its_quota_and_finishes_also_a_second_time(world: World) -> None:
    world.items(*names(7))
    clock = Clock(world)
    provider, executor = Provider(clock, accepts=3), FakeExecutor()
    executor.script = provider.call
    summary = world.go(executor=executor)
    assert (summary.exit_code, summary.counts["done"], summary.counts["failed"]) == (0, 7, 0)
    assert len(executor.began) == 7 + 2 and provider.refused == executor.rests == 2
    first, over, second, over_too = pauses(world)
    assert (first, second) == ("2030-03-17T22:46:40.000Z", "2030-03-18T03:46:40.000Z") and over == over_too == ""
    assert max(clock.slept) <= LOOK_SECONDS
    assert (world.base / "out.jsonl").read_bytes() == world.expected()
    with world.store().reader() as reader:
        events = [(event.event, event.until) for event in reader.history() if event.event in ("pause", "continue")]
    assert events == [("pause", first), ("continue", None), ("pause", second), ("continue", None)]


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_items_that_went_back_count_once_towards_the_limit(world: World, concurrency: int) -> None:
    world.items(*names(9))
    world.job = replace(world.job, concurrency=concurrency)
    summary = world.go(Provider(Clock(world), accepts=3).call, limit=5)
    assert (summary.exit_code, summary.stopped_by, summary.counts["done"]) == (4, "limit", 5)


def test_a_quota_is_waited_for_also_if_only_failed_items_are_left(world: World) -> None:
    world.items(*names(4))
    world.job = replace(world.job, stop_after_failures=0)
    assert world.go(refusing(failing())).counts["failed"] == 4
    assert world.go(Provider(Clock(world), accepts=2).call).exit_code == 0
    assert len(pauses(world)) == 2


def test_what_is_in_flight_finishes_first_and_the_checkpoint_says_until_when(world: World) -> None:
    world.items(*names(6))
    world.job = replace(world.job, concurrency=2)
    clock = Clock(world)
    seen: list[tuple[Paused | None, int, int]] = []
    release = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k000":
            await release.wait()
        if attempt.item.key == "k001" and clock.now == BEGAN:
            release.set()
            return quota(BEGAN + HOUR)
        return await answer(attempt, channel)

    def note(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        seen.append((checkpoint.paused, len(checkpoint.running), checkpoint.counts["done"]))

    def hook(store: Hooked) -> None:
        store.after = note

    world.hook = hook
    assert world.go(script).exit_code == 0
    (of_pause,) = [one for one in seen if one[0] is not None]
    assert of_pause[1:] == (0, 1) and of_pause[0] is not None
    assert (of_pause[0].until, of_pause[0].reason) == ("2030-03-17T18:46:40.000Z", "no")
    assert seen[-1][0] is None


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"max_wait_seconds": 2 * HOUR - 1}, {}),
        ({"max_time_seconds": 2 * HOUR}, {}),
        ({}, {"max_time": HOUR}),
        ({}, {"no_wait": True}),
    ],
    ids=["max_wait", "max_time", "--max-time", "--no-wait"],
)
def test_it_is_not_begun_if_it_would_end_too_late_or_nobody_wants_it(
    world: World, limits: dict[str, Any], options: dict[str, Any]
) -> None:
    world.items(*names(4))
    world.job = replace(world.job, **limits)
    Clock(world)
    executor = FakeExecutor(refusing(quota(BEGAN + 2 * HOUR)))
    summary = world.go(executor=executor, **options)
    assert (summary.exit_code, summary.resume_at) == (75, text(BEGAN + 2 * HOUR))
    assert "resume after" in summary.hint
    assert (stopped(world).resume_at, stopped(world).waits_for) == (text(BEGAN + 2 * HOUR), "no")
    assert pauses(world) == [] and executor.rests == 0 and len(world.ran) == 1


def refusing(outcome: Outcome) -> Script:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return outcome

    return script


def test_max_wait_counts_from_the_last_item_that_was_done(world: World) -> None:
    world.items(*names(2))
    world.job = replace(world.job, max_wait_seconds=5 * HOUR)
    clock = Clock(world)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return quota(clock.now + 2 * HOUR)

    assert world.go(script).exit_code == 75
    # After 0 h and 2 h; at 4 h it would end at 6 h.
    assert [one for one in pauses(world) if one] == ["2030-03-17T19:46:40.000Z", "2030-03-17T21:46:40.000Z"]
    assert clock.now == pytest.approx(BEGAN + 4 * HOUR)


def test_a_clock_that_jumps_while_the_machine_sleeps_ends_the_pause(world: World) -> None:
    world.items(*names(2))
    clock = Clock(world)

    async def sleep(seconds: float) -> None:
        clock.slept.append(seconds)
        clock.now += 3 * HOUR
        await asyncio.sleep(0)

    world.sleep = sleep
    provider = Provider(clock, accepts=1)
    assert world.go(provider.call).exit_code == 0
    assert clock.slept == [LOOK_SECONDS, LOOK_SECONDS]


@pytest.mark.parametrize("number", [2, 15])
def test_a_signal_ends_it_at_once_and_the_next_launch_still_waits(world: World, number: int) -> None:
    world.items(*names(4))
    clock = Clock(world, holds=True)
    provider = Provider(clock, accepts=2)

    async def during(launch: Launch) -> None:
        await paused(world)
        with pytest.raises(BusyError):
            world.store().lock(wait_seconds=0)
        launch.request_stop(number)

    assert world.go(provider.call, during=during).exit_code == 128 + number
    found = world.state()
    assert found is not None and found.paused is None and found.running == []
    assert (stopped(world).exit_code, stopped(world).waits_for) == (128 + number, "no")
    # 2030: the quota is not renewed yet.
    with pytest.raises(LaterError, match=r"not before 2030-03-1\d .*: no; --now tries at once"):
        world.go()
    assert world.ran == []
    assert world.state() == found
    assert world.go(now=True).exit_code == 0
    assert world.ran == names(4)[2:]


@pytest.mark.parametrize("is_over", [False, True])
def test_a_launch_that_is_killed_in_it_is_refused_until_its_time_unless_now(world: World, is_over: bool) -> None:
    world.items(*names(3))
    Clock(world)
    seen: list[Checkpoint] = []

    def step(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if seen:
            raise Died("died")  # at the checkpoint after that of the pause
        if checkpoint.paused is not None:
            if is_over:
                checkpoint.paused.until = "2026-01-01T02:00:00Z"
            seen.append(checkpoint)

    def hook(store: Hooked) -> None:
        store.before = step

    world.hook = hook
    with pytest.raises(Died):
        world.go(only_first(quota(BEGAN + HOUR)))
    world.hook = lambda store: None
    found = world.state()
    assert found is not None and found.stopped is None and found.running == [] and found.paused is not None
    if not is_over:
        with pytest.raises(LaterError, match=r"not before 2030-03-1\d .*: no; --now"):
            world.go()
        assert world.ran == [] and world.state() == found
    assert world.go(now=not is_over).exit_code == 0
    assert world.ran == names(3)


def only_first(outcome: Outcome) -> Callable[[Attempt, Channel], Awaitable[Outcome]]:
    """The first attempt of all ends so."""
    tried: list[str] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        tried.append(attempt.item.key)
        return outcome if len(tried) == 1 else await answer(attempt, channel)

    return script


def test_an_answer_that_comes_in_the_pause_counts_after_it(world: World) -> None:
    world.items(*names(3))
    clock = Clock(world, holds=True)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k000":
            return await asking(attempt, channel)
        return quota(BEGAN + HOUR) if clock.now == BEGAN else await answer(attempt, channel)

    async def during(launch: Launch) -> None:
        await paused(world)
        post(world, reply(world, "k000"))
        await eventually_on_loop(lambda: not world.store().inbox(), "the answer is processed")
        assert any(record.kind == "answer" for record in world.records())
        clock.now += HOUR
        clock.goes.set()

    assert world.go(script, during=during).exit_code == 0
    assert world.keys() == names(3) and world.ran.count("k000") == 2


def test_credit_that_is_spent_needs_a_person_and_is_not_waited_for(world: World) -> None:
    world.items(*names(3))
    failure = Failure("exception", "insufficient_quota", types=("openai.RateLimitError",), status=429)
    summary = world.go(refusing(Outcome("failed", failure=failure)))
    assert (summary.exit_code, summary.resume_at, pauses(world)) == (4, "", [])


@pytest.mark.parametrize(("asked", "is_quota"), [(LONGEST_WAIT_SECONDS, False), (LONGEST_WAIT_SECONDS + 1, True)])
def test_a_wait_of_over_15_minutes_is_a_quota_and_a_shorter_one_a_refusal(
    world: World, asked: float, is_quota: bool
) -> None:
    world.items(*names(2))
    failure = Failure("exception", "slow down", types=("openai.RateLimitError",), status=429, retry_after_seconds=asked)
    summary = world.go(only_first(Outcome("failed", failure=failure)), no_wait=True)
    assert summary.exit_code == (75 if is_quota else 0)
    if is_quota:
        assert stopped(world).waits_for == "openai's quota" and summary.resume_at
    assert not any(isinstance(event, Retrying) for event in world.events)


# ---- the rule


def rule(resume_at: float, *, now: float = 0.0, **bounds: float) -> float | None:
    reason = StopReason(75, "quota", resume_at=text(BEGAN + resume_at))
    known = Bounds(bounds.pop("max_wait", 12 * HOUR), BEGAN + bounds.pop("since", 0.0))
    if "limit" in bounds:
        known = replace(known, limit=BEGAN + bounds.pop("limit"))
    known = replace(known, in_a_row=int(bounds.pop("in_a_row", 0)))
    until = pause_until(reason, known, now=BEGAN + now)
    return until - BEGAN if until is not None else None


def test_the_rule_of_how_long() -> None:
    assert rule(HOUR) == HOUR
    assert rule(12 * HOUR) == 12 * HOUR and rule(12 * HOUR + 1) is None
    assert rule(13 * HOUR, since=2 * HOUR, now=2 * HOUR) == 13 * HOUR
    assert rule(HOUR, limit=HOUR + 1) == HOUR and rule(HOUR, limit=HOUR) is None
    # A time that has passed while the last items finished.
    assert rule(HOUR, now=2 * HOUR) == HOUR


def test_where_the_time_has_passed_and_nothing_is_accepted_it_waits_longer_each_time() -> None:
    waits = [rule(0.0, now=HOUR, in_a_row=number) for number in range(1, 8)]
    expected = [min(AGAIN_SECONDS * 2**number, AGAIN_MOST_SECONDS) for number in range(7)]
    assert waits == [HOUR + seconds for seconds in expected]
    assert rule(2 * HOUR, now=HOUR, in_a_row=1) == 2 * HOUR


@pytest.mark.parametrize(
    "reason", [None, StopReason(4, "budget"), StopReason(75, "busy"), StopReason(75, "x", resume_at="some day")]
)
def test_only_a_time_that_can_be_read_is_waited_for(reason: StopReason | None) -> None:
    assert pause_until(reason, Bounds(12 * HOUR, BEGAN), now=BEGAN) is None

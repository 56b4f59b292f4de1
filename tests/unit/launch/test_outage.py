"""A server that is down or loading holds the launch, and no item fails for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.events import Pausing
from agentrun.launch import outage
from agentrun.launch.outage import Outages
from agentrun.values.json import encode
from unit.launch.bench import World, failing, idle

HERE, THERE = "127.0.0.1:8080", "127.0.0.1:9090"
KEYS = tuple("abcdefghij")


def not_reached(server: str = HERE, status: int | None = None) -> Outcome:
    types = ("httpx.ConnectError", "builtins.Exception")
    return Outcome("failed", failure=Failure("exception", "refused", types=types, server=server, status=status))


class Server:
    """Up or down, as `is_up` says when it is asked for the nth time."""

    def __init__(self, is_up: Callable[[int], bool]) -> None:
        self.is_up = is_up
        self.asked: list[str] = []
        self.ids: list[str] = []
        self.down: list[str] = []
        """Of the items that asked, those that found it down."""

    async def __call__(self, attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        self.asked.append(key)
        self.ids.append(attempt.id)
        if not self.is_up(len(self.asked)):
            self.down.append(key)
            return not_reached()
        return Outcome("done", encode(key))


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_PROBE_SECONDS", 0.0)


def pauses(world: World) -> list[str]:
    return [event.reason for event in world.events if isinstance(event, Pausing) and event.until]


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("retries", [0, 3])
def test_a_server_that_restarts_costs_no_item_a_failure(world: World, concurrency: int, retries: int) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, concurrency=concurrency, retries=retries, stop_after_failures=1)
    server = Server(lambda number: number <= 3 or number > 40)
    summary = world.go(server)
    assert summary.exit_code == 0 and world.keys() == list(KEYS)
    assert len(server.asked) == len(KEYS) + len(server.down)
    assert set(pauses(world)) == {f"{HERE} cannot be reached: ConnectError: refused"}
    assert len(set(server.ids)) == len(server.ids)


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_items_that_failed_before_are_tried_again_also_after_an_outage(world: World, concurrency: int) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, concurrency=concurrency, stop_after_failures=0)

    async def fail(attempt: Attempt, channel: Channel) -> Outcome:
        return failing()

    assert world.go(fail).counts["failed"] == len(KEYS)
    assert world.go(Server(lambda number: number > 20)).exit_code == 0 and world.keys() == list(KEYS)
    assert pauses(world)


def test_each_probe_is_another_item_and_the_only_one_in_flight(world: World) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, concurrency=4)
    server = Server(lambda number: number <= 2 or len(probes) > 5)
    probes: list[str] = []

    async def watched(attempt: Attempt, channel: Channel) -> Outcome:
        assert world.launch is not None and world.launch._slots is not None
        slots = world.launch._slots
        if slots.has_outage:
            assert len(slots.in_flight) == 1
            probes.append(attempt.item.key)
        return await server(attempt, channel)

    assert world.go(watched).exit_code == 0
    assert len(probes) == len(set(probes)) == 6


def test_an_item_whose_server_is_not_that_of_the_others_fails_alone(world: World) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, retries=5)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return not_reached(THERE) if attempt.item.key == "c" else Outcome("done", encode("yes"))

    summary = world.go(script)
    assert summary.exit_code == 1 and summary.counts["failed"] == 1 and not pauses(world)
    # It went back once, so that another could show that nothing is wrong; then it was not tried again.
    assert world.ran.count("c") == 6 and world.ran.index("d") < len(world.ran) - 1


def test_the_only_item_fails_as_it_always_did(world: World) -> None:
    world.items("a")
    summary = world.go(Server(lambda number: False))
    assert summary.exit_code == 1 and world.ran == ["a"] * 4 and not pauses(world)


def test_the_last_item_does_not_fail_while_another_in_flight_may_show_that_the_server_is_down(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, concurrency=2, retries=1)
    server = Server(lambda number: number > 8)
    is_first = True

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        nonlocal is_first
        if attempt.item.key == "a" and is_first:
            is_first = False
            while server.asked.count("b") < 2:
                await asyncio.sleep(0)
            await idle()
            return Outcome("failed", failure=Failure("exception", "reset", types=("httpx.RemoteProtocolError",)))
        return await server(attempt, channel)

    assert world.go(script).exit_code == 0 and world.keys() == ["a", "b"]
    assert set(pauses(world)) == {f"{HERE} cannot be reached: ConnectError: refused"}


def test_an_item_in_doubt_fails_when_the_other_in_flight_is_answered(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, concurrency=2, retries=1)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "b":
            return not_reached(THERE)
        while world.ran.count("b") < 2:
            await asyncio.sleep(0)
        await idle()
        return Outcome("done", encode("yes"))

    summary = world.go(script)
    assert summary.exit_code == 1 and summary.counts["failed"] == 1 and world.ran.count("b") == 2


def test_an_item_that_brings_the_server_down_fails_at_the_third_outage(world: World) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, concurrency=2, stop_after_failures=0)
    crashed_at = -100
    calls = 0

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        nonlocal crashed_at, calls
        calls += 1
        if calls - crashed_at < 9:
            return not_reached()
        if attempt.item.key == "d":
            crashed_at = calls
            return Outcome("failed", failure=Failure("exception", "reset", types=("httpx.RemoteProtocolError",)))
        return Outcome("done", encode("yes"))

    summary = world.go(script)
    assert summary.counts["failed"] == 1 and summary.counts["done"] == len(KEYS) - 1
    assert [record.key for record in world.records() if record.kind == "failed"] == ["d"]


def test_a_server_that_was_never_reached_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.items(*KEYS)
    monkeypatch.setattr(outage, "NEVER_REACHED_SECONDS", 0.0)
    summary = world.go(Server(lambda number: False))
    assert summary.exit_code == 4 and summary.counts["failed"] == 0 and not pauses(world)
    assert summary.reason.startswith(f"{HERE} was not reached once in") and "the address" in summary.hint


def test_it_is_not_given_up_if_the_agent_has_done_an_item_in_this_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, max_wait_seconds=0.0)
    monkeypatch.setattr(outage, "NEVER_REACHED_SECONDS", 0.0)
    monkeypatch.setattr(outage, "FIRST_PROBE_SECONDS", 5.0)
    summary = world.go(Server(lambda number: number <= 1))
    assert summary.exit_code == 75 and summary.counts["failed"] == 0 and "cannot be reached" in summary.reason
    # Nobody knows when it is back: the next launch may try at once.
    monkeypatch.setattr(outage, "FIRST_PROBE_SECONDS", 0.0)
    assert world.go(Server(lambda number: True)).exit_code == 0


def test_items_of_a_carry_keep_their_order(world: World) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, carry=True)
    server = Server(lambda number: number <= 3 or number > 40)
    assert world.go(server).exit_code == 0 and world.keys() == list(KEYS)
    assert sorted(server.asked) == server.asked


def test_no_attempt_of_an_outage_counts_after_a_restart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.items(*KEYS)
    world.job = replace(world.job, concurrency=2, max_wait_seconds=0.0, retries=0)
    monkeypatch.setattr(outage, "FIRST_PROBE_SECONDS", 5.0)
    assert world.go(Server(lambda number: number <= 2)).exit_code == 75
    state = world.state()
    assert state is not None and not state.running
    assert not [record for record in world.records() if record.kind == "failed"]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def outages(concurrency: int = 1) -> Outages:
    return Outages(concurrency, in_order=False, clock=Clock())


@pytest.mark.parametrize(("concurrency", "signs"), [(1, 4), (4, 4), (9, 9)])
def test_down_is_the_last_attempts_of_two_items_at_the_same_server(concurrency: int, signs: int) -> None:
    seen = outages(concurrency)
    for number in range(signs):
        assert not seen.is_down
        seen.note_sign(HERE, number % 2, [])
    assert seen.is_down


def test_one_item_however_often_is_no_outage() -> None:
    seen = outages()
    for _ in range(50):
        seen.note_sign(HERE, 7, [])
    assert not seen.is_down


def test_an_answer_or_another_server_begins_the_count_again() -> None:
    seen = outages()
    for row in range(3):
        seen.note_sign(HERE, row, [])
    seen.note_answer()
    for row in range(3):
        seen.note_sign(HERE, row, [])
    seen.note_sign(THERE, 9, [])
    assert not seen.is_down and seen.server == THERE


def test_probes_are_5_seconds_apart_then_longer_up_to_5_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_PROBE_SECONDS", 5.0)
    monkeypatch.setattr(outage, "now_seconds", lambda: 0.0)
    monkeypatch.setattr(outage, "time_text", str)
    seen = outages()
    for row in range(4):
        seen.note_sign(HERE, row, [])
    at = [seen.hold("x", has_worked=True).probe_at for _ in range(9)]
    assert at == ["5.0", "10.0", "20.0", "40.0", "80.0", "160.0", "300.0", "300.0", "300.0"]

"""The speed that a launch has found, from one launch to the next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.checkpoint.checkpoint import Checkpoint, Speed
from agentrun.checkpoint.record import Record
from unit.launch.bench import Hooked, World, answer, failing, idle, names
from unit.launch.simulated import Bucket, run_batch

MINUTE = 60.0


def refuse_some(world: World, *, refusals: int, limit: int) -> None:
    """A launch of 8 at a time, whose first attempts are refused."""
    world.job = replace(world.job, concurrency=8)
    world.items(*names(24))
    left = refusals

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        nonlocal left
        left -= 1
        is_refused = left >= 0
        await idle()
        return failing("Retry", status=529) if is_refused else await answer(attempt, channel)

    assert world.go(script, limit=limit).exit_code == 4


def test_what_a_server_bears_is_in_the_checkpoint(world: World) -> None:
    refuse_some(world, refusals=0, limit=6)
    state = world.state()
    assert state is not None and state.context.speed is None
    refuse_some(world, refusals=6, limit=12)
    state = world.state()
    assert state is not None and state.context.speed is not None
    assert 1 <= state.context.speed.number <= 8 and abs(state.context.speed.at - time.time()) < 10 * MINUTE


def test_a_pace_alone_names_no_number(tmp_path: Path) -> None:
    night = run_batch(Bucket(), tmp_path)
    with night.store.reader() as reader:
        assert reader.checkpoint is not None and (speed := reader.checkpoint.context.speed) is not None
    assert speed.pace and speed.number == 0


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(0, "3 of 8 at a time"), (5, "3 of 8 at a time"), (11, ""), (-5, "")],
    ids=["just now", "lately", "long ago", "in the future"],
)
def test_a_speed_is_taken_up_again_within_ten_minutes(world: World, minutes: int, words: str) -> None:
    def remember(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        checkpoint.context.speed = Speed(at=time.time() - minutes * MINUTE, number=3)

    def hook(store: Hooked) -> None:
        store.before = remember

    world.job = replace(world.job, concurrency=8)
    world.items(*names(24))
    world.hook = hook
    assert world.go(limit=1).exit_code == 4
    world.hook = lambda store: None
    slowed: list[str] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        assert world.launch is not None
        slowed.append(world.launch.progress.find_slowed())
        return await answer(attempt, channel)

    assert world.go(script).exit_code == 0
    assert slowed[0] == words

"""Crash loops: items that are in flight when the runner dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.errors import AgentError
from agentrun.values.units import parse_allowance
from unit.launch.bench import (
    Died,
    FakeExecutor,
    Hooked,
    World,
    answer,
    counting,
    failing,
    idle,
    names,
    only,
)


class CrashWorld(World):
    """Its launches die while k001 is in flight."""

    def die(self, **options: Any) -> None:
        armed: list[bool] = []

        async def script(attempt: Attempt, channel: Channel) -> Outcome:
            if attempt.item.key == "k001":
                await idle()
                armed.append(True)
                raise Died("the runner is gone")
            return await answer(attempt, channel)

        def before(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
            if armed:
                raise Died("the runner is gone")

        def hook(store: Hooked) -> None:
            store.before = before

        self.hook = hook
        try:
            with pytest.raises(Died):
                self.go(script, **options)
        finally:
            self.hook = lambda store: None


@pytest.fixture(params=["folder", "memory"])
def crashing(request: pytest.FixtureRequest, tmp_path: Path) -> CrashWorld:
    return CrashWorld(tmp_path, request.param)


def test_an_item_that_takes_the_runner_with_it_is_set_aside_the_third_time(crashing: CrashWorld) -> None:
    crashing.items(*names(6))
    crashing.die()
    assert crashing.ran == ["k000", "k001"]
    crashing.die()
    assert crashing.ran == ["k001"]
    crashing.die()
    assert crashing.ran == ["k002", "k003", "k004", "k005", "k001"]  # last, and alone
    summary = crashing.go()
    assert crashing.ran == []
    assert summary.exit_code == 1 and summary.counts["failed"] == 1
    for options in ({}, {"failed": True}, {"agent": "v2"}):
        assert crashing.go(**options).exit_code == 1
        assert crashing.ran == []
    crashing.job = replace(crashing.job, allow_failures=parse_allowance("1"))
    assert crashing.go().exit_code == 0
    assert crashing.keys() == [key for key in names(6) if key != "k001"]


def test_a_suspect_that_is_done_after_all_counts_like_any_other(crashing: CrashWorld) -> None:
    crashing.items(*names(4))
    crashing.die()
    crashing.die()
    crashing.job = replace(crashing.job, concurrency=3)
    live: dict[str, set[str]] = {}
    executor = FakeExecutor()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        live[attempt.item.key] = set(executor.live)
        return await answer(attempt, channel)

    executor.script = script
    assert crashing.go(executor=executor).exit_code == 0
    assert crashing.ran[-1] == "k001" and live["k001"] == {"k001"}
    assert (crashing.base / "out.jsonl").read_bytes() == crashing.expected()


def test_an_item_that_failed_before_and_takes_the_runner_with_it_is_set_aside_too(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    crashing.go(only({"k001": failing()}))
    for _ in range(3):
        crashing.die()
        assert crashing.ran == ["k001"]
    assert crashing.go().exit_code == 1
    assert crashing.ran == []


def test_a_reboot_is_nobodys_fault(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    for _ in range(5):
        crashing.die()
        assert crashing.ran[-1] == "k001"
        assert crashing.ran != ["k002", "k001"]
        store = crashing.store()
        lease = store.lock(wait_seconds=0)
        found = store.load().checkpoint
        assert found is not None and found.running
        found.context.boot = "another"
        found.seq += 1
        store.commit(found)
        lease.release()
    assert crashing.go().exit_code == 0


def test_with_crash_limit_0_nothing_is_set_aside(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    crashing.job = replace(crashing.job, crash_limit=0)
    for _ in range(5):
        crashing.die()
        assert crashing.ran[-1] == "k001"
    assert crashing.go().exit_code == 0
    assert crashing.ran == ["k001", "k002"]


def test_a_clean_stop_counts_no_death(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    for _ in range(5):
        assert crashing.go(only({"k001": failing("Stop")})).exit_code == 4
        assert crashing.ran[-1] == "k001"
    assert crashing.go().exit_code == 0


def test_a_launch_that_could_not_start_its_agent_counts_no_death(crashing: CrashWorld) -> None:
    class Broken(FakeExecutor):
        async def start(self) -> None:
            raise AgentError("agent.py: it cannot be loaded")

    crashing.items(*names(3))
    for _ in range(4):
        with pytest.raises(AgentError):
            crashing.go(executor=Broken())
        found = crashing.state()
        assert found is not None and found.running == []
    assert crashing.go().exit_code == 0
    assert crashing.ran == names(3)


def test_with_a_carry_a_suspect_keeps_its_place(crashing: CrashWorld) -> None:
    crashing.items(*names(4))
    crashing.job = replace(crashing.job, carry=True)
    crashing.die()
    crashing.die()
    assert crashing.go(counting).exit_code == 0
    assert crashing.ran == ["k001", "k002", "k003"]


def test_with_a_carry_a_set_aside_item_is_passed_over_and_the_chain_holds(crashing: CrashWorld) -> None:
    crashing.items(*names(4))
    crashing.job = replace(crashing.job, carry=True)
    for _ in range(3):
        crashing.die()
    assert crashing.go(counting).exit_code == 1
    assert crashing.ran == ["k002", "k003"]
    assert crashing.go(counting).exit_code == 1
    assert crashing.ran == []

"""A launch whose attempts run on other machines: what its checkpoints say, how wide it is, what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import ENGINE_LOST, HOST_LOST, Failure
from agentrun.checkpoint.checkpoint import Checkpoint, EngineUse
from agentrun.checkpoint.record import Record
from agentrun.errors import DiskError, UsageError
from agentrun.events import Warned
from agentrun.executors.port import Elastic, Joined
from agentrun.job.engine import EngineSpec
from agentrun.launch.attempts import LOSSES, LOSSES_IN_COMPANY
from unit.launch.bench import FakeExecutor, Hooked, Script, World, answer
from waiting import eventually_on_loop


class FakeCluster(FakeExecutor, Elastic):
    """An executor on machines that the test plays. A fence answers for `places`; `width` is what the test sets."""

    def __init__(self, script: Script = answer, *, places: Sequence[str] = ("p1",), width: int = 1) -> None:
        super().__init__(script)
        self._places = places
        self._width = width
        self.silent: set[str] = set()
        self.marks: list[str] = []
        self.joined: Joined
        self.holds = 0
        self._is_alone = False
        self.dies_at_start = self.cannot_connect = False
        self.left: list[str] = []

    @property
    def most(self) -> int:
        return 8

    @property
    def width(self) -> int:
        return self._width

    def set_width(self, width: int) -> None:
        self._width = width
        self.joined.changed()

    @property
    def is_alone(self) -> bool:
        return self._is_alone

    @property
    def places_left(self) -> list[str]:
        return self.left

    async def connect(self) -> None:
        if self.cannot_connect:
            raise UsageError("there is no such cluster")

    def where(self, slot: int) -> str:
        return f"worker of slot {slot}"

    def join(self, joined: Joined) -> None:
        self.joined = joined

    def hold(self) -> None:
        self.holds += 1

    def resume(self) -> None:
        pass

    async def start(self) -> None:
        self.marks.append(self.joined.use.mark)
        if self.dies_at_start:
            raise DiskError("died before the fence")
        self.silent = set(self.joined.use.hosts) - set(self._places)
        self.joined.use.hosts = []
        self._is_alone = True

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        for place in self._places:
            if place not in self.joined.use.hosts:
                self.joined.use.hosts = [*self.joined.use.hosts, place]
                await self.joined.commit()
        return await super().run(attempt, channel)


@pytest.fixture
def cluster_world(world: World) -> World:
    world.job = replace(world.job, concurrency=4, engine=EngineSpec(on="dask", kind="dask", lease_seconds=5.0))
    world.items("a", "b", "c", "d")
    return world


def engine_of(world: World) -> EngineUse | None:
    state = world.state()
    assert state is not None
    return state.context.engine


def test_checkpoints_name_the_mark_the_hosts_and_where_each_item_runs(cluster_world: World) -> None:
    seen: list[tuple[list[str], list[tuple[str, str]]]] = []

    def look(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        assert checkpoint.context.engine is not None and checkpoint.context.engine.mark
        running = [(one.key, one.where) for one in checkpoint.running]
        seen.append((list(checkpoint.context.engine.hosts), running))

    def hook(store: Hooked) -> None:
        store.after = look

    cluster_world.hook = hook
    assert cluster_world.go(executor=FakeCluster()).exit_code == 0
    assert seen[0] == ([], [("a", "worker of slot 0")])
    assert (["p1"], [("b", "worker of slot 0")]) in seen


def test_a_clean_stop_leaves_no_host_to_look_for(cluster_world: World) -> None:
    assert cluster_world.go(executor=FakeCluster(), limit=2).exit_code == 4
    use = engine_of(cluster_world)
    assert use is not None and use.hosts == []


def test_a_stop_leaves_named_what_it_could_not_end(cluster_world: World) -> None:
    executor = FakeCluster()
    executor.left = ["p7"]
    assert cluster_world.go(executor=executor, limit=2).exit_code == 4
    use = engine_of(cluster_world)
    assert use is not None and use.hosts == ["p7"]


def test_a_cluster_that_is_not_there_is_told_before_anything_is_written(cluster_world: World) -> None:
    assert cluster_world.go(executor=FakeCluster(), limit=2).exit_code == 4
    before = cluster_world.state()
    executor = FakeCluster()
    executor.cannot_connect = True
    with pytest.raises(UsageError, match="there is no such cluster"):
        cluster_world.go(executor=executor, fresh=True)
    assert cluster_world.state() == before
    assert cluster_world.go(executor=FakeCluster()).exit_code == 0


def test_a_launch_that_dies_leaves_its_hosts_named_and_the_next_one_has_its_mark(cluster_world: World) -> None:
    first = FakeCluster()
    cluster_world.crash(commits=4, executor=first)
    use = engine_of(cluster_world)
    assert use is not None and (use.mark, use.hosts) == (first.marks[0], ["p1"])
    second = FakeCluster(places=["p2"])
    assert cluster_world.go(executor=second).exit_code == 0
    assert second.silent == {"p1"} and second.marks == first.marks


def test_a_launch_that_dies_before_its_fence_does_not_hide_the_one_before_it(cluster_world: World) -> None:
    first = FakeCluster()
    cluster_world.crash(commits=4, executor=first)
    second = FakeCluster(places=["p2"])
    second.dies_at_start = True
    with pytest.raises(DiskError):
        cluster_world.go(executor=second)
    third = FakeCluster(places=["p3"])
    assert cluster_world.go(executor=third).exit_code == 0
    assert third.silent == {"p1"} and third.marks == first.marks


def test_a_fresh_run_ends_what_the_abandoned_one_left(cluster_world: World) -> None:
    first = FakeCluster()
    cluster_world.crash(commits=4, executor=first)
    fresh = FakeCluster(places=["p2"])
    assert cluster_world.go(executor=fresh, fresh=True).exit_code == 0
    assert fresh.silent == {"p1"} and fresh.marks == first.marks


def test_a_launch_without_the_cluster_waits_until_nothing_can_run_there(cluster_world: World) -> None:
    cluster_world.crash(commits=4, executor=FakeCluster())
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    cluster_world.sleep = sleep
    cluster_world.job = replace(cluster_world.job, engine=None)
    executor = FakeExecutor()
    cluster_world.go(executor=executor, limit=1)
    assert waited == [7.0]
    assert [event.text for event in cluster_world.events if isinstance(event, Warned)] == [
        "the last launch ran on a cluster; waiting 7 s, until nothing of it can be running there"
    ]
    assert engine_of(cluster_world) is None
    assert cluster_world.go().exit_code == 0 and waited == [7.0]


def test_after_a_clean_stop_nothing_is_waited_for(cluster_world: World) -> None:
    cluster_world.go(executor=FakeCluster(), limit=2)

    async def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    cluster_world.sleep = sleep
    cluster_world.job = replace(cluster_world.job, engine=None)
    assert cluster_world.go().exit_code == 0


def test_items_in_flight_are_as_many_as_the_cluster_can_take(cluster_world: World) -> None:
    go, width = asyncio.Event(), 3
    executor: FakeCluster

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "a":
            executor.set_width(width)  # more machines come while the first item runs
        await go.wait()
        return await answer(attempt, channel)

    async def during(launch: object) -> None:
        while len(executor.live) < width:
            await asyncio.sleep(0.001)
        assert len(executor.live) == width
        executor.set_width(2)  # and go
        go.set()

    executor = FakeCluster(script)
    assert cluster_world.go(executor=executor, during=during).exit_code == 0
    assert executor.most_live == width


def test_a_stop_tells_the_cluster_to_begin_nothing(cluster_world: World) -> None:
    executor = FakeCluster()
    cluster_world.go(executor=executor, limit=1)
    assert executor.holds


def lost(code: str) -> Outcome:
    return Outcome("lost", failure=Failure("lost", "lost with worker-1: its host ended", code=code))


def test_an_item_that_is_lost_with_its_host_uses_up_no_retry_and_fails_when_that_happens_again_and_again(
    cluster_world: World,
) -> None:
    cluster_world.job = replace(cluster_world.job, retries=0)
    tries = 0

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        nonlocal tries
        if attempt.item.key == "b":
            tries += 1
            if tries <= losses:
                return lost(HOST_LOST)
        return await answer(attempt, channel)

    losses = LOSSES
    assert cluster_world.go(executor=FakeCluster(script)).exit_code == 0
    assert tries == LOSSES + 1
    tries, losses = 0, 1000
    assert cluster_world.go(executor=FakeCluster(script), fresh=True).exit_code == 1
    assert tries == LOSSES + 1
    assert cluster_world.keys("out.partial.jsonl") == ["a", "c", "d"]


def test_an_item_that_ends_its_machine_again_and_again_does_not_take_its_neighbours_with_it(
    cluster_world: World,
) -> None:
    """All items in flight are lost with the machine. The poisonous one is found when each is run alone."""
    cluster_world.job = replace(cluster_world.job, concurrency=4, retries=0, crash_limit=0)
    alone: list[set[str]] = []
    began: dict[str, int] = {}

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        began[key] = began.get(key, 0) + 1
        if key == "b":
            alone.append(executor.live - {"b"})
        if began[key] <= LOSSES_IN_COMPANY or key == "b":
            return lost(HOST_LOST)
        return await answer(attempt, channel)

    executor = FakeCluster(script, width=4)
    assert cluster_world.go(executor=executor).exit_code == 1
    assert cluster_world.keys("out.partial.jsonl") == ["a", "c", "d"]
    assert began["b"] == LOSSES + 1 and alone[LOSSES_IN_COMPANY:] == [set()] * (LOSSES + 1 - LOSSES_IN_COMPANY)
    assert all(count == LOSSES_IN_COMPANY + 1 for key, count in began.items() if key != "b")


def test_a_slot_that_comes_while_a_checkpoint_is_written_is_used_when_that_is_on_disk(cluster_world: World) -> None:
    go = asyncio.Event()
    loop: asyncio.AbstractEventLoop

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await go.wait()
        return await answer(attempt, channel)

    executor = FakeCluster(script)

    def look(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        """In the thread that writes: the checkpoint with one item more is not on disk yet."""
        if len(checkpoint.running) == executor.width < 4 and len(executor.live) < len(checkpoint.running) > 1:
            loop.call_soon_threadsafe(executor.set_width, executor.width + 1)

    def hook(store: Hooked) -> None:
        store.after = look

    async def during(launch: object) -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await eventually_on_loop(lambda: executor.live, "the first item runs")
        executor.set_width(2)
        try:
            await eventually_on_loop(lambda: len(executor.live) == 4, "four items run")
        finally:
            go.set()

    cluster_world.hook = hook
    cluster_world.job = replace(cluster_world.job, concurrency=4)
    assert cluster_world.go(executor=executor, during=during).exit_code == 0
    assert executor.most_live == 4


def test_a_lost_engine_ends_the_launch_with_75_and_no_item_has_failed(cluster_world: World) -> None:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        return lost(ENGINE_LOST) if attempt.item.key == "b" else await answer(attempt, channel)

    assert cluster_world.go(executor=FakeCluster(script)).exit_code == 75
    state = cluster_world.state()
    assert state is not None and state.counts["failed"] == 0

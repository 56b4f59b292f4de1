"""Slots, commits, order: what runs when."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import random
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.errors import DiskError
from agentrun.events import Began, Planned, Settled
from agentrun.launch.launch import Launch
from agentrun.system.disk import Disk
from unit.launch.bench import (
    FakeExecutor,
    Hooked,
    World,
    answer,
    idle,
    names,
)


def test_results_are_in_item_order_whatever_the_order_of_finishing(world: World) -> None:
    rng = random.Random(5)

    async def shuffled(attempt: Attempt, channel: Channel) -> Outcome:
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        return await answer(attempt, channel)

    world.items(*names(60))
    world.job = replace(world.job, concurrency=8)
    executor = FakeExecutor(shuffled)
    summary = world.go(executor=executor)
    assert summary.exit_code == 0 and summary.counts["done"] == 60
    assert world.results() == [
        {"index": n, "key": key, "output": {"of": f"value of {key}"}} for n, key in enumerate(names(60))
    ]
    assert list(world.results()[0]) == ["index", "key", "output"]
    assert executor.most_live == 8
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_finished_run_leaves_no_state_and_a_fresh_one_begins_at_the_first_item(world: World) -> None:
    world.items("a", "b")
    first = world.go()
    assert world.state() is None
    second = world.go(fresh=True)
    assert world.ran == ["a", "b"]
    assert second.run_id > first.run_id
    last = world.planned().last
    assert last is not None and last.run_id == first.run_id


def test_a_slot_takes_the_next_item_only_when_its_checkpoint_is_on_disk(world: World) -> None:
    """Nothing else begins while a commit is written, and nobody is told."""
    world.items("a", "b", "c")
    executor = FakeExecutor()
    held: list[tuple[list[str], int]] = []

    def hold(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if records:
            assert world.launch is not None
            held.append((list(executor.began), world.launch.progress.done))

    def hook(store: Hooked) -> None:
        store.meanwhile = store.after = hold

    world.hook = hook
    assert world.go(executor=executor).exit_code == 0
    assert held == [
        (["a"], 0),
        (["a"], 0),
        (["a", "b"], 1),
        (["a", "b"], 1),
        (["a", "b", "c"], 2),
        (["a", "b", "c"], 2),
    ]


def test_slots_side_by_side_take_no_item_while_the_commit_of_theirs_is_held_up(world: World) -> None:
    world.items(*names(6))
    world.job = replace(world.job, concurrency=2)
    executor = FakeExecutor()
    loops: list[asyncio.AbstractEventLoop] = []
    begun: list[int] = []

    async def during(launch: Launch) -> None:
        loops.append(asyncio.get_running_loop())

    def hold(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if records and loops:
            # The store has a thread of its own here: the loop goes on, and finds nothing to begin.
            asyncio.run_coroutine_threadsafe(idle(), loops[0]).result()
            assert world.launch is not None
            begun.append(len(executor.began) - world.launch.progress.done)

    def hook(store: Hooked) -> None:
        store.meanwhile = store.after = hold

    world.hook = hook
    assert world.go(executor=executor, during=during).exit_code == 0
    assert begun and max(begun) <= 2


def test_running_names_what_is_in_flight_before_it_begins(world: World) -> None:
    world.items(*names(30))
    world.job = replace(world.job, concurrency=3)
    on_disk: list[list[str]] = []
    settled: set[str] = set()
    rng = random.Random(3)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        assert attempt.item.key in on_disk[-1]
        for _ in range(rng.randrange(10)):
            await asyncio.sleep(0)
        return await answer(attempt, channel)

    def after(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        settled.update(record.key for record in records)
        running = [item.key for item in checkpoint.running]
        assert not settled & set(running)
        assert len(running) <= 3
        on_disk.append(running)

    def hook(store: Hooked) -> None:
        store.after = after

    world.hook = hook
    executor = FakeExecutor(script)
    assert world.go(executor=executor).exit_code == 0
    assert on_disk[0] == names(3)
    assert on_disk[-1] == on_disk[-2] == []
    assert {key for running in on_disk for key in running} == set(names(30))


def test_at_concurrency_1_there_is_a_checkpoint_after_every_item(world: World) -> None:
    world.items("a", "b", "c")
    commits: list[tuple[list[str], list[str]]] = []

    def hook(store: Hooked) -> None:
        store.after = lambda checkpoint, records: commits.append(
            ([record.key for record in records], [item.key for item in checkpoint.running])
        )

    world.hook = hook
    world.go()
    assert commits[:4] == [([], ["a"]), (["a"], ["b"]), (["b"], ["c"]), (["c"], [])]
    assert all(commit == ([], []) for commit in commits[4:])


def test_a_commit_takes_all_that_gathered_while_the_one_before_was_written(world: World) -> None:
    world.items(*names(8))
    world.job = replace(world.job, concurrency=8)
    first_is_in, others_are_done = threading.Event(), threading.Event()
    executor = FakeExecutor()
    sizes: list[int] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key != "k000":
            while not first_is_in.is_set():
                await asyncio.sleep(0)
        return await answer(attempt, channel)

    async def during(launch: Launch) -> None:
        while not first_is_in.is_set() or executor.live:
            await asyncio.sleep(0)
        await idle()
        others_are_done.set()

    def meanwhile(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
        if records:
            sizes.append(len(records))
            first_is_in.set()
            others_are_done.wait()

    def hook(store: Hooked) -> None:
        store.meanwhile = meanwhile

    executor.script = script
    world.hook = hook
    assert world.go(executor=executor, during=during).exit_code == 0
    assert sizes == [1, 7]


def test_an_error_of_the_store_ends_the_launch_and_nothing_more_is_acknowledged(world: World) -> None:
    world.items(*names(12))
    world.job = replace(world.job, concurrency=4)
    world.crash(commits=3)
    assert world.launch is not None
    done_then = world.launch.progress.done
    found = world.state()
    assert found is not None and found.counts["done"] == done_then < 12
    before = set(world.ran)
    assert world.go().exit_code == 0
    assert len(before & set(world.ran)) <= 4
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


class FailingDisk(Disk):
    """One call fails, the n-th fsync or rename; every later one works, and would say that all is well."""

    def __init__(self, operation: str, at: int) -> None:
        self.operation = operation
        self.left = at
        self.calls_after = 0

    def _step(self, operation: str) -> None:
        if self.left < 0:
            self.calls_after += 1
        if operation == self.operation:
            self.left -= 1
            if self.left == -1:
                raise OSError(errno.EIO, "I/O error")

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        super().fsync(fd)

    def replace(self, source: str, target: str) -> None:
        self._step("replace")
        super().replace(source, target)


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_an_ambiguous_commit_ends_the_launch_with_74_and_the_next_one_is_right(
    in_folder: World, operation: str
) -> None:
    in_folder.items(*names(5))
    in_folder.job = replace(in_folder.job, concurrency=2)
    expected = in_folder.expected()
    for at in range(100):
        (in_folder.base / "out.jsonl").unlink(missing_ok=True)
        in_folder.clear()
        disk = FailingDisk(operation, at)
        in_folder.disk = disk
        try:
            in_folder.go(overwrite=True)
        except DiskError as error:
            assert error.exit_code == 74
            assert disk.calls_after == 0
        else:
            assert disk.left >= 0
            break
        in_folder.disk = None
        counted = len(in_folder.ran)
        assert in_folder.go(overwrite=True).exit_code == 0
        assert counted + len(in_folder.ran) <= 5 + 2
        assert (in_folder.base / "out.jsonl").read_bytes() == expected
    assert at > 5


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_dying_at_any_commit_and_going_on_gives_the_same_results(world: World, concurrency: int, landed: bool) -> None:
    """The whole of it: at each commit of a run, the first of a launch and the last ones included."""
    world.items(*names(7))
    world.job = replace(world.job, concurrency=concurrency, crash_limit=0)
    expected = world.expected()
    for commits in range(30):
        (world.base / "out.jsonl").unlink(missing_ok=True)
        counted: dict[str, int] = {}
        try:
            world.crash(commits=commits, landed=landed, overwrite=True)
        except pytest.fail.Exception:
            break  # it did not die any more
        for key in world.ran:
            counted[key] = counted.get(key, 0) + 1
        acknowledged = world.launch.progress.done if world.launch else 0
        found = world.state()
        assert (found.counts.get("done", 0) if found else 0) >= acknowledged
        summary = world.go(overwrite=True)
        assert summary.exit_code == 0
        for key in world.ran:
            counted[key] = counted.get(key, 0) + 1
        assert (world.base / "out.jsonl").read_bytes() == expected
        assert set(counted) == set(names(7)) or landed
        assert sum(count - 1 for count in counted.values()) <= concurrency
    else:
        pytest.fail("a run of seven items has fewer commits than this")


def test_dying_again_and_again_still_ends_in_the_same_results(world: World) -> None:
    world.items(*names(9))
    world.job = replace(world.job, concurrency=2, crash_limit=0)
    runs = 0
    for _ in range(60):
        try:
            world.crash(commits=3)
        except pytest.fail.Exception:
            break
        runs += len(world.ran)
    else:
        pytest.fail("three commits a launch are enough to go on")
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_first_and_last_of_a_launch_are_told(world: World) -> None:
    world.items("a")
    world.go()
    kinds = [type(event) for event in world.events]
    assert kinds == [Planned, Began, Settled]


def test_a_store_that_fails_under_many_slots_is_one_error_and_nothing_else_is_said(world: World) -> None:
    world.items(*names(40))
    world.job = replace(world.job, concurrency=16)
    said: list[str] = []

    async def during(launch: Launch) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["message"]))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.index % 2:
            # It ends after the store has failed, and is done all the same.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return await answer(attempt, channel)

    world.crash(script, commits=2, during=during)
    world.launch = None
    gc.collect()
    assert said == []

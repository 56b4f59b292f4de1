"""A launch, from the lock to the last checkpoint, with a scripted executor on the stores of the library."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.checkpoint import Checkpoint
from agentrun.errors import (
    AgentError,
    AgentrunError,
    CheckpointError,
    DiskError,
    ItemsError,
    JobError,
    LaterError,
    PlanError,
    SourceChangedError,
)
from agentrun.events import Began, Event, Planned, Stopping, Warned
from agentrun.executors.port import Attempt, Channel, Outcome
from agentrun.failure import Failure
from agentrun.job import ItemsSpec, Job
from agentrun.launch import Launch
from agentrun.recovery import Options
from agentrun.store.disk import Disk
from agentrun.store.folder import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Entry, Store
from agentrun.values import parse_allowance

DATA = Path(__file__).parents[1] / "data"
Script = Callable[[Attempt, Channel], Awaitable[Outcome]]
Hook = Callable[[Checkpoint, Sequence[Entry]], None]


class Hooked:
    """What a test does before and after a commit."""

    before: Hook | None = None
    after: Hook | None = None


class HookedFolder(FolderStore, Hooked):
    def commit(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> list[int]:
        if self.before is not None:
            self.before(checkpoint, entries)
        refs = super().commit(checkpoint, entries, flush=flush)
        if self.after is not None:
            self.after(checkpoint, entries)
        return refs


class HookedMemory(MemoryStore, Hooked):
    def commit(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> list[int]:
        if self.before is not None:
            self.before(checkpoint, entries)
        refs = super().commit(checkpoint, entries, flush=flush)
        if self.after is not None:
            self.after(checkpoint, entries)
        return refs


async def answer(attempt: Attempt, channel: Channel) -> Outcome:
    data = attempt.item.data
    value = data["v"] if isinstance(data, dict) else attempt.item.text
    return Outcome("done", orjson.dumps({"of": value}))


def failing(kind: str = "Fail", **more: Any) -> Outcome:
    return Outcome("failed", failure=Failure("exception", "no", types=(f"agentrun.errors.{kind}",), **more))


def only(failures: Mapping[str, Outcome]) -> Script:
    """These items end so; all others are done."""

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        found = failures.get(attempt.item.key)
        return found if found is not None else await answer(attempt, channel)

    return script


class FakeExecutor:
    """The executor port, by a script. It checks that there are never two live attempts of one item."""

    def __init__(self, script: Script = answer) -> None:
        self.script = script
        self.began: list[str] = []
        self.live: set[str] = set()
        self.most_live = 0
        self.starts = 0

    async def start(self) -> None:
        self.starts += 1

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        assert key not in self.live
        self.began.append(key)
        self.live.add(key)
        self.most_live = max(self.most_live, len(self.live))
        attempt.log_path.write_bytes(b"")
        try:
            return await self.script(attempt, channel)
        finally:
            self.live.discard(key)

    async def close(self) -> None:
        pass


class World:
    """A job's folder, its items and its store, launch after launch."""

    def __init__(self, base: Path, kind: str) -> None:
        self.base = base
        self.memory = HookedMemory() if kind == "memory" else None
        self.folder = base / ".agentrun" / "job"
        self.redo_limit_bytes = 600
        self.job = Job(
            name="job",
            base=base,
            items=ItemsSpec(kind="jsonl", pattern="items.jsonl", key="id"),
            agent="agent.py:run",
            params={},
            output="out.jsonl",
        )
        self.events: list[Event] = []
        self.launch: Launch | None = None
        self.hook: Callable[[Hooked], None] = lambda store: None
        self.ran: list[str] = []
        self.disk: Disk | None = None

    def items(self, *keys: str, **changed: int) -> None:
        """Item k has the value of its name, or what is given for it."""
        lines = [orjson.dumps({"id": key, "v": changed.get(key, f"value of {key}")}) + b"\n" for key in keys]
        (self.base / "items.jsonl").write_bytes(b"".join(lines))

    def store(self) -> HookedFolder | HookedMemory:
        store = self.memory or HookedFolder(self.folder, disk=self.disk, redo_limit_bytes=self.redo_limit_bytes)
        store.before = store.after = None
        self.hook(store)
        return store

    def go(
        self,
        script: Script = answer,
        *,
        agent: str = "v1",
        during: Callable[[Launch], Awaitable[None]] | None = None,
        prepared: Callable[[], None] | None = None,
        compact_over_bytes: int = 1 << 30,
        executor: FakeExecutor | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """One launch. `self.ran` is what it ran, in the order of beginning."""
        executor = executor or FakeExecutor(script)
        self.events, self.ran = [], executor.began
        launch = self.launch = Launch(
            self.job,
            self.store(),
            agent=agent,
            options=Options(wait_seconds=0, **options),
            watcher=self.events.append,
            disk=self.disk,
            sleep=no_sleep,
            compact_over_bytes=compact_over_bytes,
        )

        async def main() -> dict[str, Any]:
            beside = asyncio.ensure_future(during(launch)) if during else None
            try:
                return await launch.work(executor)
            finally:
                if beside is not None:
                    await beside

        try:
            nothing_to_do = launch.prepare()
            if nothing_to_do is not None:
                return nothing_to_do
            if prepared is not None:
                prepared()
            return asyncio.run(main())
        finally:
            launch.close()

    def crash(self, script: Script = answer, *, commits: int, landed: bool = False, **options: Any) -> None:
        """A launch that dies at a commit, after so many: what was in flight is never heard of again."""
        self.hook = dies_after(commits, landed=landed)
        try:
            with pytest.raises(Died):
                self.go(script, **options)
        finally:
            self.hook = lambda store: None

    def state(self) -> Checkpoint | None:
        store = self.store()
        return store.load().checkpoint

    def results(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in (self.base / name).read_bytes().splitlines()]

    def keys(self, name: str = "out.jsonl") -> list[str]:
        return [line["key"] for line in self.results(name)]

    def planned(self) -> Planned:
        (event,) = [event for event in self.events if isinstance(event, Planned)]
        return event

    def expected(self, *, directory: str = "fresh") -> bytes:
        """The results of an undisturbed run over the items as they are now."""
        other = World(self.base / directory, "memory")
        other.base.mkdir(exist_ok=True)
        other.job = replace(self.job, base=other.base, concurrency=1)
        (other.base / "items.jsonl").write_bytes((self.base / "items.jsonl").read_bytes())
        assert other.go()["exit_code"] == 0
        return (other.base / "out.jsonl").read_bytes()


class Died(DiskError):
    """In the place of a process that is gone: nothing is written after it."""


def dies_after(commits: int, *, landed: bool) -> Callable[[Hooked], None]:
    left = commits

    def step(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died("died")

    def hook(store: Hooked) -> None:
        if landed:
            store.after = step
        else:
            store.before = step

    return hook


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


async def idle() -> None:
    """Until everything on the loop that can go on has done so."""
    for _ in range(60):
        await asyncio.sleep(0)


@pytest.fixture(params=["folder", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


@pytest.fixture
def in_folder(tmp_path: Path) -> World:
    return World(tmp_path, "folder")


def names(count: int) -> list[str]:
    return [f"k{number:03}" for number in range(count)]


# ---- running


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
    assert summary["exit_code"] == 0 and summary["counts"]["done"] == 60
    assert world.results() == [
        {"index": n, "key": key, "output": {"of": f"value of {key}"}} for n, key in enumerate(names(60))
    ]
    assert list(world.results()[0]) == ["index", "key", "output"]
    assert executor.most_live == 8
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_finished_run_leaves_no_state_and_the_next_begins_at_the_first_item(world: World) -> None:
    world.items("a", "b")
    first = world.go()
    assert world.state() is None
    second = world.go()
    assert world.ran == ["a", "b"]
    assert second["run_id"] > first["run_id"]
    last = world.planned().last
    assert last is not None and last["run_id"] == first["run_id"]


def test_a_slot_takes_the_next_item_only_when_its_checkpoint_is_on_disk(world: World) -> None:
    """A commit that is held up: nothing else begins meanwhile, and nobody is told."""
    world.items("a", "b", "c")
    executor = FakeExecutor()
    held: list[tuple[list[str], int]] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def during(launch: Launch) -> None:
        loops.append(asyncio.get_running_loop())

    def hold(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        if entries and loops:
            asyncio.run_coroutine_threadsafe(idle(), loops[0]).result()
            assert world.launch is not None
            held.append((list(executor.began), world.launch.progress.done))

    def hook(store: Hooked) -> None:
        store.before = store.after = hold

    world.hook = hook
    assert world.go(executor=executor, during=during)["exit_code"] == 0
    assert held == [
        (["a"], 0),
        (["a"], 0),
        (["a", "b"], 1),
        (["a", "b"], 1),
        (["a", "b", "c"], 2),
        (["a", "b", "c"], 2),
    ]


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

    def after(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        settled.update(entry.fields["key"] for entry in entries)
        running = [item["key"] for item in checkpoint.running]
        assert not settled & set(running)
        assert len(running) <= 3
        on_disk.append(running)

    def hook(store: Hooked) -> None:
        store.after = after

    world.hook = hook
    executor = FakeExecutor(script)
    assert world.go(executor=executor)["exit_code"] == 0
    assert on_disk[0] == names(3)
    assert on_disk[-1] == on_disk[-2] == []
    assert {key for running in on_disk for key in running} == set(names(30))


def test_at_concurrency_1_there_is_a_checkpoint_after_every_item(world: World) -> None:
    world.items("a", "b", "c")
    commits: list[tuple[list[str], list[str]]] = []

    def hook(store: Hooked) -> None:
        store.after = lambda checkpoint, entries: commits.append(
            ([entry.fields["key"] for entry in entries], [item["key"] for item in checkpoint.running])
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

    def before(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        if entries:
            sizes.append(len(entries))
            first_is_in.set()
            others_are_done.wait()

    def hook(store: Hooked) -> None:
        store.before = before

    executor.script = script
    world.hook = hook
    assert world.go(executor=executor, during=during)["exit_code"] == 0
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
    assert world.go()["exit_code"] == 0
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
        # Where only the last fsync failed, all that it was to make durable is there: the next run is another one.
        is_over = not (in_folder.folder / "state.json").exists() and bool(in_folder.ran)
        assert in_folder.go(overwrite=True)["exit_code"] == 0
        assert counted + len(in_folder.ran) <= (10 if is_over else 5 + 2)
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
        assert summary["exit_code"] == 0
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
    assert kinds == [Planned, Began]


# ---- failures


def test_failed_items_are_tried_last_by_the_next_launch_and_left_after_three(world: World) -> None:
    world.items("a", "b")
    script = only({"a": failing()})
    assert world.go(script)["exit_code"] == 1
    assert world.ran == ["a", "b"]
    assert world.keys("out.partial.jsonl") == ["b"]
    world.items("a", "b", "c")
    assert world.go(script)["exit_code"] == 1
    assert world.ran == ["c", "a"]
    assert world.go(script)["exit_code"] == 1
    assert world.ran == ["a"]
    assert world.go(script)["exit_code"] == 1
    assert world.ran == []
    assert world.planned().plan.left == 1
    assert world.go(script, failed=True)["exit_code"] == 1
    assert world.ran == ["a"]
    assert world.go(script)["exit_code"] == 1
    assert world.ran == []
    assert world.go(script, agent="v2")["exit_code"] == 1
    assert world.ran == ["a"]
    assert world.go(agent="v3")["exit_code"] == 0
    assert world.ran == ["a"]
    assert world.keys() == ["a", "b", "c"]
    assert not (world.base / "out.partial.jsonl").exists()


def test_a_failed_item_that_changed_is_a_pending_one(world: World) -> None:
    world.items("a", "b")
    for _ in range(4):
        world.go(only({"a": failing()}))
    world.items("a", "b", a=2)
    generations: list[int] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        generations.append(attempt.generation)
        return await answer(attempt, channel)

    assert world.go(script)["exit_code"] == 0
    assert world.ran == ["a"] and generations == [1]


@pytest.mark.parametrize(("allowed", "exit_code"), [("0", 1), ("1", 1), ("2", 0), ("19%", 1), ("20%", 0)])
def test_a_run_completes_with_as_many_failures_as_are_allowed(world: World, allowed: str, exit_code: int) -> None:
    world.items(*names(10))
    world.job = replace(world.job, allow_failures=parse_allowance(allowed))
    summary = world.go(only({"k003": failing(), "k007": failing()}))
    assert summary["exit_code"] == exit_code
    assert summary["counts"]["failed"] == 2
    if exit_code == 0:
        assert world.keys() == [key for key in names(10) if key not in ("k003", "k007")]
        assert world.state() is None


def test_three_failures_before_the_first_done_item_stop_a_launch(world: World) -> None:
    world.items(*names(20))
    summary = world.go(only(dict.fromkeys(names(20), failing())))
    assert summary["exit_code"] == 4
    assert world.ran == names(3)
    # A higher limit would not help: before the first done item it is 3.
    assert "3 items failed in a row" in summary["reason"] and "--stop-after-failures 0" in summary["hint"]


def test_failures_in_a_row_stop_a_launch_and_a_done_one_between_does_not(world: World) -> None:
    world.items(*names(30))
    world.job = replace(world.job, stop_after_failures=4)
    bad = [key for key in names(30) if key not in ("k000", "k004")]
    summary = world.go(only(dict.fromkeys(bad, failing())))
    assert summary["exit_code"] == 4
    assert world.ran == names(9)


def test_stop_after_failures_0_never_stops(world: World) -> None:
    world.items(*names(15))
    world.job = replace(world.job, stop_after_failures=0)
    assert world.go(only(dict.fromkeys(names(15), failing())))["exit_code"] == 1
    assert world.ran == names(15)


def test_when_a_launch_stops_what_would_be_tried_again_goes_back_and_is_not_failed(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, concurrency=2)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "b":
            return failing("Stop")
        while not any(isinstance(event, Stopping) for event in world.events):
            await asyncio.sleep(0)
        return failing("Retry")

    summary = world.go(script)
    assert (summary["exit_code"], summary["counts"]["failed"], summary["counts"]["pending"]) == (4, 0, 2)
    assert sorted(world.ran) == ["a", "b"]
    assert world.go()["exit_code"] == 0


@pytest.mark.parametrize(("resume_at", "exit_code"), [(None, 4), ("2026-05-05T06:00:00", 75)])
def test_what_would_fail_everyone_stops_and_marks_nothing_failed(
    world: World, resume_at: str | None, exit_code: int
) -> None:
    world.items(*names(20))
    world.job = replace(world.job, concurrency=3)
    bad = failing("Stop", resume_at=resume_at)
    summary = world.go(only(dict.fromkeys(names(20)[2:], bad)))
    assert summary["exit_code"] == exit_code
    assert len(world.ran) <= 5
    found = world.state()
    assert found is not None and found.running == []
    assert (found.counts["failed"], found.counts["done"], found.counts["pending"]) == (0, 2, 18)
    assert world.go()["exit_code"] == 0
    assert world.ran == names(20)[2:]


def test_a_skipped_item_is_settled_without_a_line(world: World) -> None:
    world.items("a", "b", "c")
    summary = world.go(only({"b": failing("Skip")}))
    assert summary["exit_code"] == 0 and summary["counts"]["skipped"] == 1
    assert world.results() == [
        {"index": 0, "key": "a", "output": {"of": "value of a"}},
        {"index": 2, "key": "c", "output": {"of": "value of c"}},
    ]


# ---- limits and stopping


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("limit", [1, 3, 5])
def test_limit_runs_exactly_so_many(world: World, concurrency: int, limit: int) -> None:
    world.items(*names(9))
    world.job = replace(world.job, concurrency=concurrency)
    summary = world.go(limit=limit)
    assert summary["exit_code"] == 4 and summary["counts"]["done"] == limit
    assert sorted(world.ran) == names(limit)
    assert world.go(limit=9 - limit)["exit_code"] == 0
    assert world.keys() == names(9)


def test_the_first_signal_lets_what_is_in_flight_finish(world: World) -> None:
    world.items(*names(10))
    world.job = replace(world.job, concurrency=2)
    stopped = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key in ("k002", "k003"):
            await stopped.wait()
        return await answer(attempt, channel)

    executor = FakeExecutor(script)

    async def during(launch: Launch) -> None:
        while executor.live != {"k002", "k003"}:
            await asyncio.sleep(0)
        launch.request_stop(15)
        await idle()
        assert executor.live == {"k002", "k003"}
        stopped.set()

    summary = world.go(executor=executor, during=during)
    assert summary["exit_code"] == 143 and summary["counts"]["done"] == 4
    assert [event.in_flight for event in world.events if isinstance(event, Stopping)] == [2]
    found = world.state()
    assert found is not None and found.running == []
    assert world.go()["exit_code"] == 0
    assert world.ran == names(10)[4:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_the_second_signal_cancels_and_the_items_go_back(world: World) -> None:
    world.items(*names(6))
    world.job = replace(world.job, concurrency=2)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key in ("k002", "k003"):
            await asyncio.Event().wait()
        return await answer(attempt, channel)

    executor = FakeExecutor(script)

    async def during(launch: Launch) -> None:
        while executor.live != {"k002", "k003"}:
            await asyncio.sleep(0)
        launch.request_stop(2)
        launch.request_stop(2)

    summary = world.go(executor=executor, during=during)
    assert summary["exit_code"] == 130 and summary["counts"]["pending"] == 4
    assert not executor.live
    found = world.state()
    assert found is not None and found.running == [] and found.counts["failed"] == 0
    assert world.go()["exit_code"] == 0
    assert world.ran == names(6)[2:]


def test_without_an_end_the_grace_period_cancels(world: World) -> None:
    world.items("a", "b")
    world.job = replace(world.job, grace_seconds=0.0)

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        assert world.launch is not None
        world.launch.request_stop(1)
        await asyncio.Event().wait()
        raise AssertionError

    assert world.go(script)["exit_code"] == 129
    assert world.state() is not None


def test_a_signal_before_the_work_begins_starts_nothing(world: World) -> None:
    world.items("a", "b")

    def prepared() -> None:
        assert world.launch is not None
        world.launch.request_stop(15)

    assert world.go(prepared=prepared)["exit_code"] == 143
    assert world.ran == []
    assert world.go()["exit_code"] == 0


def test_a_signal_counts_over_the_reason_that_came_first(world: World) -> None:
    """Of several exit codes: signals, then 75, then 4."""
    world.items(*names(6))
    world.job = replace(world.job, concurrency=2)
    bad_key_is_told = asyncio.Event()

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k000":
            return failing("Stop")
        await bad_key_is_told.wait()
        return await answer(attempt, channel)

    async def during(launch: Launch) -> None:
        while not any(isinstance(event, Stopping) for event in world.events):
            await asyncio.sleep(0)
        launch.request_stop(15)
        bad_key_is_told.set()

    assert world.go(script, during=during)["exit_code"] == 143


# ---- crash loops


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

        def before(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
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
    assert summary["exit_code"] == 1 and summary["counts"]["failed"] == 1
    for options in ({}, {"failed": True}, {"agent": "v2"}):
        assert crashing.go(**options)["exit_code"] == 1
        assert crashing.ran == []
    crashing.job = replace(crashing.job, allow_failures=parse_allowance("1"))
    assert crashing.go()["exit_code"] == 0
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
    assert crashing.go(executor=executor)["exit_code"] == 0
    assert crashing.ran[-1] == "k001" and live["k001"] == {"k001"}
    assert (crashing.base / "out.jsonl").read_bytes() == crashing.expected()


def test_an_item_that_failed_before_and_takes_the_runner_with_it_is_set_aside_too(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    crashing.go(only({"k001": failing()}))
    for _ in range(3):
        crashing.die()
        assert crashing.ran == ["k001"]
    assert crashing.go()["exit_code"] == 1
    assert crashing.ran == []


def test_a_reboot_is_nobodys_fault(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    for _ in range(5):
        crashing.die()
        assert crashing.ran[-1] == "k001"
        assert crashing.ran != ["k002", "k001"]
        store = crashing.store()
        store.lock(wait_seconds=0)
        found = store.load().checkpoint
        assert found is not None and found.running
        found.context["boot"] = "another"
        found.seq += 1
        store.commit(found)
        store.release()
    assert crashing.go()["exit_code"] == 0


def test_with_crash_limit_0_nothing_is_set_aside(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    crashing.job = replace(crashing.job, crash_limit=0)
    for _ in range(5):
        crashing.die()
        assert crashing.ran[-1] == "k001"
    assert crashing.go()["exit_code"] == 0
    assert crashing.ran == ["k001", "k002"]


def test_a_clean_stop_counts_no_death(crashing: CrashWorld) -> None:
    crashing.items(*names(3))
    for _ in range(5):
        assert crashing.go(only({"k001": failing("Stop")}))["exit_code"] == 4
        assert crashing.ran[-1] == "k001"
    assert crashing.go()["exit_code"] == 0


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
    assert crashing.go()["exit_code"] == 0
    assert crashing.ran == names(3)


def test_with_a_carry_a_suspect_keeps_its_place(crashing: CrashWorld) -> None:
    crashing.items(*names(4))
    crashing.job = replace(crashing.job, carry=True)
    crashing.die()
    crashing.die()
    assert crashing.go(counting)["exit_code"] == 0
    assert crashing.ran == ["k001", "k002", "k003"]


def test_with_a_carry_a_set_aside_item_is_passed_over_and_the_chain_holds(crashing: CrashWorld) -> None:
    crashing.items(*names(4))
    crashing.job = replace(crashing.job, carry=True)
    for _ in range(3):
        crashing.die()
    assert crashing.go(counting)["exit_code"] == 1
    assert crashing.ran == ["k002", "k003"]
    assert crashing.go(counting)["exit_code"] == 1
    assert crashing.ran == []


# ---- the items as they are now


def interrupted(world: World, count: int, done: int) -> None:
    world.items(*names(count))
    assert world.go(limit=done)["exit_code"] == 4


def test_moved_items_keep_their_result_and_only_new_changed_and_unfinished_ones_are_run(world: World) -> None:
    interrupted(world, 20, 12)
    kept = names(20)
    now = ["new1", *kept[::-1][:10], "new2", *kept[:10], "new3"]
    now.remove("k005")  # gone, and finished: one of twelve
    world.items(*now, k003=1, k015=2)
    assert world.go(allow_gone=False)["exit_code"] == 0
    plan = world.planned().plan
    # k003 was finished and has changed; k012 to k019 were not finished.
    assert sorted(world.ran) == sorted(["k003", *kept[12:], "new1", "new2", "new3"])
    assert (plan.changed, plan.gone, plan.kept, plan.run) == (1, 1, 10, 11)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_too_much_gone_is_refused_and_coming_back_nothing_is_run_twice(world: World) -> None:
    interrupted(world, 20, 10)
    before = world.state()
    world.items(*names(20)[2:])
    with pytest.raises(PlanError, match=r"2 of 10 finished items are no longer in the source \(k000, k001\)"):
        world.go()
    assert world.state() == before
    world.items(*names(20))
    assert world.go()["exit_code"] == 0
    assert world.ran == names(20)[10:]


def test_what_is_gone_is_left_out_when_allowed_and_counts_again_when_it_is_back(world: World) -> None:
    interrupted(world, 20, 10)
    world.items(*names(20)[5:])
    assert world.go(allow_gone=True, limit=4)["exit_code"] == 4
    # What was allowed once is not asked for again.
    assert world.go(limit=1)["exit_code"] == 4
    found = world.state()
    assert found is not None and (found.total, found.counts["done"]) == (15, 10)
    world.items(*names(20))
    assert world.go()["exit_code"] == 0
    assert world.ran == names(20)[15:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_gone_item_is_not_in_the_results(world: World) -> None:
    interrupted(world, 20, 10)
    world.items(*names(20)[1:])
    assert world.go()["exit_code"] == 0
    assert world.keys() == names(20)[1:]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_a_failed_item_that_is_gone_is_neither_tried_nor_counted(world: World) -> None:
    world.items(*names(5))
    world.go(only({"k001": failing()}))
    world.items(*[key for key in names(5) if key != "k001"])
    assert world.go()["exit_code"] == 0
    assert world.ran == []


def test_changed_items_are_kept_when_asked(world: World) -> None:
    interrupted(world, 6, 4)
    world.job = replace(world.job, keep_changed=True)
    world.items(*names(6), k001=1, k005=2)
    assert world.go()["exit_code"] == 0
    assert world.ran == ["k004", "k005"]
    assert world.planned().plan.kept_changed == 1
    assert [line["output"]["of"] for line in world.results()][1::4] == ["value of k001", 2]


def test_an_item_that_changes_after_the_listing_stops_the_launch(world: World) -> None:
    world.items(*names(4))
    with pytest.raises(SourceChangedError, match="k001") as caught:
        world.go(prepared=lambda: world.items(*names(4), k001=1))
    assert caught.value.exit_code == 75
    found = world.state()
    assert found is not None and found.running == [] and found.counts["failed"] == 0
    assert world.go()["exit_code"] == 0
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_what_is_new_or_changed_before_the_end_is_run_too(world: World) -> None:
    world.items(*names(4))
    changed: list[bool] = []

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k003" and not changed:
            changed.append(True)
            world.items(*names(6), k000=1)
        return await answer(attempt, channel)

    assert world.go(script)["exit_code"] == 0
    assert world.ran == [*names(4), "k000", "k004", "k005"]
    assert any(isinstance(event, Warned) and "run now: 3" in event.text for event in world.events)
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_items_that_go_during_the_launch_are_not_left_out_silently(world: World) -> None:
    world.items(*names(10))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k009":
            world.items(*names(3))
        return await answer(attempt, channel)

    with pytest.raises(LaterError, match="no longer in the source"):
        world.go(script)
    assert not (world.base / "out.jsonl").exists()
    world.items(*names(10))
    assert world.go()["exit_code"] == 0
    assert world.ran == []
    assert world.keys() == names(10)


@pytest.mark.parametrize("line", [b'{"id": "half', b'{"id": "k000", "v": 1}\n'], ids=["half a line", "a key twice"])
def test_a_source_that_goes_bad_during_the_launch_is_for_later(world: World, line: bytes) -> None:
    """Exit 75, not 2: items were run, and the same command goes on when the source is at rest."""
    world.items(*names(4))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        if attempt.item.key == "k003":
            with (world.base / "items.jsonl").open("ab") as file:
                file.write(line)
        return await answer(attempt, channel)

    with pytest.raises(LaterError, match=r"items\.jsonl, line 5"):
        world.go(script)
    world.items(*names(4))
    assert world.go()["exit_code"] == 0
    assert world.ran == [] and world.keys() == names(4)


def test_without_items_there_is_nothing_to_run(world: World) -> None:
    world.items()
    with pytest.raises(ItemsError, match="nothing to run"):
        world.go()
    assert world.state() is None


def test_files_are_items_by_their_path_and_run_again_when_their_content_changed(world: World) -> None:
    world.job = replace(world.job, items=ItemsSpec(kind="files", pattern="docs/*.txt"))
    docs = world.base / "docs"
    docs.mkdir()
    for name in ("a", "b", "c"):
        (docs / f"{name}.txt").write_text(name)
    assert world.go(limit=2)["exit_code"] == 4
    (docs / "a.txt").touch()  # other times, the same content
    (docs / "b.txt").write_text("b, longer")
    assert world.go()["exit_code"] == 0
    assert world.ran == ["docs/b.txt", "docs/c.txt"]
    assert [line["output"]["of"] for line in world.results()] == ["a", "b, longer", "c"]


def test_repeated_lines_are_items_of_their_own_at_every_launch(world: World) -> None:
    world.job = replace(world.job, items=ItemsSpec(kind="lines", pattern="urls.txt"))
    (world.base / "urls.txt").write_text("x\ny\nx\nx\ny\n")
    assert world.go(limit=2)["exit_code"] == 4
    assert world.ran == ["x", "y"]
    assert world.go(limit=1)["exit_code"] == 4
    assert world.ran == ["x~2"]
    assert world.go()["exit_code"] == 0
    assert world.ran == ["x~3", "y~2"]
    assert world.keys() == ["x", "y", "x~2", "x~3", "y~2"]


# ---- the carry


async def counting(attempt: Attempt, channel: Channel) -> Outcome:
    """Each item sees what the ones before left, and adds itself."""
    before = attempt.carry or []
    value = attempt.item.data["v"]
    assert await channel({"type": "carry", "value": [*before, value]}) == {}
    return Outcome("done", orjson.dumps({"before": before, "of": value}))


def carried(world: World) -> bytes:
    other = World(world.base / "fresh", "memory")
    other.base.mkdir(exist_ok=True)
    other.job = replace(world.job, base=other.base)
    (other.base / "items.jsonl").write_bytes((world.base / "items.jsonl").read_bytes())
    assert other.go(counting, overwrite=True)["exit_code"] == 0
    return (other.base / "out.jsonl").read_bytes()


@pytest.fixture
def carrying(world: World) -> World:
    world.job = replace(world.job, carry=True)
    return world


def test_the_carry_goes_from_item_to_item_and_over_a_crash(carrying: World) -> None:
    carrying.items(*names(6))
    expected = carried(carrying)
    for landed in (False, True):
        for commits in range(1, 6):
            carrying.crash(counting, commits=commits, landed=landed, overwrite=True)
            assert carrying.go(counting)["exit_code"] == 0
            assert len(carrying.ran) == 6 - commits + (not landed)
            assert (carrying.base / "out.jsonl").read_bytes() == expected


def test_the_carry_of_an_item_that_failed_is_not_kept(carrying: World) -> None:
    carrying.items("a", "b", "c")
    carrying.job = replace(carrying.job, allow_failures=parse_allowance("1"))

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        outcome = await counting(attempt, channel)
        return failing() if attempt.item.key == "b" else outcome

    assert carrying.go(script)["exit_code"] == 0
    assert [line["output"]["before"] for line in carrying.results()] == [[], ["value of a"]]


def test_where_an_item_changed_the_run_goes_back_to_it_with_the_carry_before_it(carrying: World) -> None:
    carrying.items(*names(6))
    assert carrying.go(counting, limit=4)["exit_code"] == 4
    carrying.items(*names(6), k002=1)
    generations: dict[str, int] = {}

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        generations[attempt.item.key] = attempt.generation
        return await counting(attempt, channel)

    assert carrying.go(script)["exit_code"] == 0
    assert carrying.ran == names(6)[2:]
    assert generations == {"k002": 1, "k003": 1, "k004": 0, "k005": 0}
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("commits", [0, 1, 2, 3, 4])
def test_a_crash_while_going_back_is_still_right(carrying: World, commits: int, landed: bool) -> None:
    carrying.items(*names(6))
    assert carrying.go(counting, limit=5)["exit_code"] == 4
    carrying.items(*names(6), k001=1)
    carrying.crash(counting, commits=commits, landed=landed)
    assert carrying.go(counting)["exit_code"] == 0
    # The first commit of a launch has no record; each further one that is on disk is an item not run again.
    settled = max(0, commits - 1 + landed)
    assert carrying.ran == names(6)[1 + settled :]
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


@pytest.mark.parametrize(
    "now",
    [
        ["k001", "k000", "k002", "k003", "k004"],
        ["k000", "new", "k001", "k002", "k003", "k004"],
        ["k000", "k002", "k003", "k004"],
        ["new", "k000", "k001", "k002", "k003", "k004"],
    ],
    ids=["moved", "inserted", "gone", "first"],
)
def test_moved_inserted_and_gone_items_break_the_carry_there(carrying: World, now: list[str]) -> None:
    carrying.items(*names(5))
    assert carrying.go(counting, limit=4)["exit_code"] == 4
    carrying.items(*now)
    assert carrying.go(counting, allow_gone=True)["exit_code"] == 0
    unbroken = next(n for n in range(6) if now[n] != names(5)[n])
    assert carrying.ran == now[unbroken:]
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


def test_with_a_carry_changed_items_are_kept_when_asked_until_something_breaks_it(carrying: World) -> None:
    carrying.items(*names(5))
    carrying.job = replace(carrying.job, keep_changed=True)
    assert carrying.go(counting, limit=3)["exit_code"] == 4
    carrying.items("new", *names(5), k001=1)
    assert carrying.go(counting)["exit_code"] == 0
    assert (carrying.base / "out.jsonl").read_bytes() == carried(carrying)


# ---- the run's identity, its versions, its output


def test_compaction_at_launch_keeps_the_results(world: World) -> None:
    expected_of = 3
    world.items(*names(8))
    world.job = replace(world.job, carry=True)
    world.go(counting, limit=6)
    for value in range(expected_of):  # each round supersedes all records
        world.items(*names(8), k000=value)
        assert world.go(counting, limit=6)["exit_code"] == 4
    world.items(*names(8), k000=expected_of - 1)
    before = world.store()
    before.load()
    size = before.size()
    assert world.go(counting, compact_over_bytes=1000, limit=1)["exit_code"] == 4
    after = world.store()
    after.load()
    assert after.size() < size / 2
    assert [record["key"] for _, record in after.scan()] == names(7)
    assert world.ran == ["k006"]
    assert world.go(counting)["exit_code"] == 0
    assert world.ran == ["k007"]
    assert (world.base / "out.jsonl").read_bytes() == carried(world)


def test_a_launch_that_compacts_writes_the_right_results(world: World) -> None:
    world.items(*names(8))
    for value in range(4):
        world.items(*names(8), **dict.fromkeys(names(6), value))
        assert world.go(limit=6)["exit_code"] == 4
    assert world.go(compact_over_bytes=1000)["exit_code"] == 0
    assert world.ran == ["k006", "k007"]
    assert (world.base / "out.jsonl").read_bytes() == world.expected()


def test_versions_of_the_agent_are_counted_and_told(world: World) -> None:
    world.items(*names(6))
    world.go(limit=2)
    world.go(limit=3, agent="v2")
    assert any("results span versions: 2 of v1" in note for note in world.planned().notes)
    found = world.state()
    assert found is not None and found.context["versions"] == {"v1": 2, "v2": 3}
    assert world.go(agent="v2")["versions"] == {"v1": 2, "v2": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"items": ItemsSpec(kind="lines", pattern="items.jsonl")},
        {"items": ItemsSpec(kind="jsonl", pattern="items.jsonl", key="v")},
        {"agent": "agent.py:other"},
        {"params": {"customer": "acme"}},
    ],
    ids=["items", "key", "agent", "params"],
)
def test_another_job_under_the_name_of_an_unfinished_run_is_refused(world: World, change: dict[str, Any]) -> None:
    interrupted(world, 4, 2)
    before = world.state()
    mine, world.job = world.job, replace(world.job, **change)
    with pytest.raises(PlanError, match="--name"):
        world.go()
    assert world.state() == before
    world.job = mine
    assert world.go()["exit_code"] == 0
    world.job = replace(world.job, **change)
    assert world.go(overwrite=True)["exit_code"] == 0


def test_fresh_files_the_old_run_as_abandoned_and_starts_over(world: World) -> None:
    interrupted(world, 4, 2)
    found = world.state()
    assert found is not None
    assert world.go(fresh=True)["exit_code"] == 0
    assert world.ran == names(4)
    store = world.store()
    assert [one["status"] for one in store.summaries()] == ["finished", "abandoned"]
    assert store.summaries()[1]["run_id"] == found.run_id


def test_what_an_abandoned_run_paid_for_is_kept_in_its_journal(in_folder: World) -> None:
    in_folder.redo_limit_bytes = 16 * 1024
    interrupted(in_folder, 4, 3)
    found = in_folder.state()
    assert found is not None and len(found.outputs) == 3
    assert in_folder.go(fresh=True)["exit_code"] == 0
    journal = in_folder.folder / "runs" / f"{found.run_id}.jsonl"
    assert [orjson.loads(line)["key"] for line in journal.read_bytes().splitlines()] == names(3)


def test_fresh_with_items_from_python_reads_the_new_ones(in_folder: World) -> None:
    in_folder.job = replace(in_folder.job, items=ItemsSpec(kind="python", pattern=""))

    def go(*items: str, **options: Any) -> dict[str, Any]:
        launch = Launch(
            in_folder.job,
            in_folder.store(),
            agent="v1",
            options=Options(wait_seconds=0, **options),
            items=list(items),
        )
        try:
            assert launch.prepare() is None
            return asyncio.run(launch.work(FakeExecutor()))
        finally:
            launch.close()

    assert go("a", "b", "c", limit=1)["exit_code"] == 4
    assert go("d", "e", fresh=True)["exit_code"] == 0
    assert in_folder.keys() == ["d", "e"]
    assert list(in_folder.folder.glob("*.spool")) == []


def test_dying_while_an_old_run_is_abandoned_loses_neither_run(in_folder: World) -> None:
    interrupted(in_folder, 4, 2)
    state = (in_folder.folder / "state.json").read_bytes()
    in_folder.go(fresh=True, limit=1)
    # As if the launch had died between the summary of the old run and clearing its state.
    (in_folder.folder / "state.json").write_bytes(state)
    summary = in_folder.go()
    assert summary["exit_code"] == 0 and in_folder.ran == names(4)


def test_an_output_that_no_run_of_this_job_wrote_is_refused_before_anything_runs(world: World) -> None:
    world.items("a", "b")
    (world.base / "out.jsonl").write_text("mine\n")
    with pytest.raises(JobError, match="no run of this job wrote it"):
        world.go()
    assert world.ran == [] and (world.base / "out.jsonl").read_text() == "mine\n"
    assert world.go(overwrite=True)["exit_code"] == 0
    assert world.go()["exit_code"] == 0  # now it is our own
    (world.base / "out.jsonl").write_text("edited\n")
    with pytest.raises(JobError, match="--overwrite"):
        world.go()


def test_overwrite_is_kept_with_the_run(world: World) -> None:
    world.items("a", "b")
    (world.base / "out.jsonl").write_text("mine\n")
    world.go(overwrite=True, limit=1)
    assert world.go()["exit_code"] == 0


def test_an_output_folder_that_is_not_there_is_told_before_anything_runs(world: World) -> None:
    world.items("a")
    world.job = replace(world.job, output="nowhere/out.jsonl")
    with pytest.raises(JobError, match="mkdir -p"):
        world.go()
    assert world.ran == [] and world.state() is None


def test_resume_goes_on_or_says_that_there_is_nothing_to_do(world: World) -> None:
    world.items("a", "b")
    with pytest.raises(PlanError, match="has no run to go on with"):
        world.go(resume=True)
    world.go(limit=1)
    assert world.go(resume=True)["exit_code"] == 0
    assert world.ran == ["b"]
    summary = world.go(resume=True)
    assert summary["exit_code"] == 0 and summary["nothing_to_do"] and summary["total"] == 2
    assert world.ran == []


# ---- clean completion, and recovery of what a crash left of it


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_state_whose_run_has_a_summary_is_cleared_and_nothing_is_run(in_folder: World) -> None:
    in_folder.items("a", "b")
    states: list[bytes] = []

    def hook(store: Hooked) -> None:
        store.after = lambda checkpoint, entries: states.append((in_folder.folder / "state.json").read_bytes())

    in_folder.hook = hook
    first = in_folder.go()
    in_folder.hook = lambda store: None
    results = (in_folder.base / "out.jsonl").read_bytes()
    (in_folder.folder / "state.json").write_bytes(states[-1])
    summary = in_folder.go()
    assert summary["exit_code"] == 0 and summary["run_id"] == first["run_id"]
    assert in_folder.ran == [] and not (in_folder.folder / "state.json").exists()
    assert any(isinstance(event, Warned) and "finished already" in event.text for event in in_folder.events)
    assert (in_folder.base / "out.jsonl").read_bytes() == results
    assert in_folder.go()["exit_code"] == 0 and in_folder.ran == ["a", "b"]


def test_results_that_a_dying_launch_had_renamed_already_are_its_own(world: World) -> None:
    world.items("a", "b")
    results = world.expected()
    # One commit at the beginning, one an item, one at the end; then the one before the results.
    world.crash(commits=4, landed=True)
    found = world.state()
    assert found is not None and "completing" in found.context
    (world.base / "out.jsonl").write_bytes(results)
    assert world.go()["exit_code"] == 0
    assert world.ran == [] and (world.base / "out.jsonl").read_bytes() == results


def test_recovery_changes_nothing_on_disk_before_the_first_commit(in_folder: World) -> None:
    in_folder.items(*names(8))
    in_folder.crash(commits=5)
    for name in (".state.json.0123456789ab.tmp", "journal-7.jsonl", "items-0-x.spool"):
        (in_folder.folder / name).write_bytes(b"left by a crash")
    before = snapshot(in_folder.folder)
    seen: list[dict[str, tuple[bytes, int]]] = []

    def look(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        if len(seen) < 2:
            seen.append(snapshot(in_folder.folder))

    def hook(store: Hooked) -> None:
        store.before = look

    in_folder.hook = hook
    prepared: list[dict[str, tuple[bytes, int]]] = []
    executor = FakeExecutor()
    assert in_folder.go(executor=executor, prepared=lambda: prepared.append(snapshot(in_folder.folder)))
    assert prepared == [before]
    assert seen[0] == before
    # After it, what no checkpoint names is gone.
    assert not {".state.json.0123456789ab.tmp", "journal-7.jsonl", "items-0-x.spool"} & set(seen[1])


def test_nothing_is_told_or_started_before_the_first_commit(world: World) -> None:
    world.items("a")
    executor = FakeExecutor()

    def before(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        if checkpoint.seq == 1:
            assert executor.starts == 0 and executor.began == []
            assert [type(event) for event in world.events] == [Planned]

    def hook(store: Hooked) -> None:
        store.before = before

    world.hook = hook
    assert world.go(executor=executor)["exit_code"] == 0


def test_every_launch_raises_launches_and_a_damaged_state_stops_it(in_folder: World) -> None:
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    found = in_folder.state()
    assert found is not None and found.context["launches"] == 1
    path = in_folder.folder / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"total": 2', b'"total": 3'))
    before = snapshot(in_folder.folder)
    with pytest.raises(CheckpointError) as caught:
        in_folder.go()
    assert caught.value.exit_code == 65 and snapshot(in_folder.folder) == before
    assert in_folder.go(accept_edits=True)["exit_code"] == 0
    assert in_folder.ran == ["b"]


def test_a_damaged_state_is_kept_when_the_run_is_begun_anew(in_folder: World) -> None:
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    (in_folder.folder / "state.json").write_bytes(b"{}")
    assert in_folder.go(fresh=True)["exit_code"] == 0
    assert in_folder.ran == ["a", "b"]
    (kept,) = (in_folder.folder / "runs").glob("*-set-aside.state")
    assert kept.read_bytes() == b"{}"


def test_an_edited_output_is_in_the_results(in_folder: World) -> None:
    in_folder.redo_limit_bytes = 16 * 1024
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    path = in_folder.folder / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"value of a"', b'"edited by hand"'))
    assert in_folder.go(accept_edits=True)["exit_code"] == 0
    assert [line["output"]["of"] for line in in_folder.results()] == ["edited by hand", "value of b"]


def test_a_second_launch_is_refused_while_the_first_is_at_work(world: World) -> None:
    world.items("a")

    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        store: Store = world.memory or FolderStore(world.folder)
        second = Launch(world.job, store, agent="v1", options=Options(wait_seconds=0))
        with pytest.raises(AgentrunError) as caught:
            second.prepare()
        assert caught.value.exit_code == 75
        if world.memory is None:
            second.close()
        return await answer(attempt, channel)

    assert world.go(script)["exit_code"] == 0


def test_state_json_stays_small_and_says_where_the_run_is(in_folder: World) -> None:
    in_folder.items(*names(120))
    in_folder.job = replace(in_folder.job, stop_after_failures=0)
    most = 0

    def after(checkpoint: Checkpoint, entries: Sequence[Entry]) -> None:
        nonlocal most
        most = max(most, (in_folder.folder / "state.json").stat().st_size)

    def hook(store: Hooked) -> None:
        store.after = after

    in_folder.hook = hook
    in_folder.go(only({key: failing() for key in names(120)[::2]}), limit=110)
    found = in_folder.state()
    assert found is not None
    assert (found.last_completed, found.total) == (109, 120)
    assert found.counts == {"pending": 10, "done": 55, "failed": 55, "skipped": 0, "waiting": 0}
    assert found.done == [[n, n] for n in range(1, 110, 2)]
    assert most < 4096


def test_an_unfinished_run_of_version_1_goes_on(in_folder: World) -> None:
    """Of the folder that is checked in: five of eight documents are settled, one of them failed."""
    shutil.copytree(DATA / "state-v1", in_folder.folder)
    in_folder.folder.parent.chmod(0o700)
    in_folder.folder.chmod(0o700)
    (in_folder.base / "docs").mkdir()
    for number in range(8):
        (in_folder.base / "docs" / f"{number}.txt").write_text(f"document {number} é\u2028")
    in_folder.job = replace(in_folder.job, agent="agent.py:read", items=ItemsSpec(kind="files", pattern="docs/*.txt"))
    assert in_folder.go()["exit_code"] == 0
    assert in_folder.ran == [f"docs/{number}.txt" for number in (5, 6, 7, 1)]
    assert in_folder.keys() == [f"docs/{number}.txt" for number in (0, 1, 3, 4, 5, 6, 7)]


def test_logs_are_kept_of_items_that_are_not_done(in_folder: World) -> None:
    async def script(attempt: Attempt, channel: Channel) -> Outcome:
        await channel({"type": "log", "text": f"hello from {attempt.item.key}"})
        assert "error" in await channel({"type": "nonsense"})
        return failing() if attempt.item.key == "b" else await answer(attempt, channel)

    in_folder.items("a", "b")
    in_folder.go(script)
    (log,) = (in_folder.folder / "logs").iterdir()
    text = log.read_text()
    assert "hello from b" in text and "launch 1, attempt 1" in text and "hello from a" not in text
    in_folder.go()
    assert list((in_folder.folder / "logs").iterdir()) == []


def test_the_log_of_launches_has_every_launch_checkpoint_and_stop(in_folder: World) -> None:
    in_folder.items("a", "b")
    in_folder.go(limit=1)
    in_folder.go()
    lines = [orjson.loads(line) for line in (in_folder.folder / "log.jsonl").read_bytes().splitlines()]
    events = [line["event"] for line in lines if line["event"] != "checkpoint"]
    assert events == ["launch", "stop", "restore", "stop"]
    assert all("at" in line and "last_completed" in line for line in lines)


@pytest.fixture(autouse=True)
def no_left_over_threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before

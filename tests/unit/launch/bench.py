"""A bench for launches: a scripted executor, stores with hooks, jobs to run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.agents.attempt import Attempt, Channel, Outcome, addressed
from agentrun.agents.failure import Failure
from agentrun.agents.messages import Carry, Received
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary
from agentrun.errors import AgentrunError, DiskError
from agentrun.events import Event, Planned
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.launch.launch import Launch
from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Sync
from agentrun.system.disk import Disk

DATA = Path(__file__).parents[2] / "data"
Script = Callable[[Attempt, Channel], Awaitable[Outcome]]
Hook = Callable[[Checkpoint, Sequence[Record]], None]


class Hooked:
    """What a test does before and after a commit, and where it would wait for the disk."""

    before: Hook | None = None
    meanwhile: Hook | None = None
    after: Hook | None = None

    def hook(self, checkpoint: Checkpoint, records: Sequence[Record], begin: Callable[[], Sync]) -> Sync:
        if self.before is not None:
            self.before(checkpoint, records)
        sync = begin()

        def sync_and_tell() -> list[int]:
            if self.meanwhile is not None:
                self.meanwhile(checkpoint, records)
            refs = sync()
            if self.after is not None:
                self.after(checkpoint, records)
            return refs

        return sync_and_tell


class HookedFolder(FolderStore, Hooked):
    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        return self.hook(checkpoint, records, lambda: super(HookedFolder, self).begin(checkpoint, records))


class HookedMemory(MemoryStore, Hooked):
    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        return self.hook(checkpoint, records, lambda: super(HookedMemory, self).begin(checkpoint, records))


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
        self.starts = self.rests = 0

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
            return await self.script(attempt, addressed(attempt.id, channel))
        finally:
            self.live.discard(key)

    async def rest(self) -> None:
        assert not self.live
        self.rests += 1

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
        self.wall_clock: Callable[[], float] = time.time
        self.sleep: Callable[[float], Awaitable[None]] = no_sleep

    def items(self, *keys: str, **changed: int) -> None:
        """Item k has the value of its name, or what is given for it."""
        lines = [orjson.dumps({"id": key, "v": changed.get(key, f"value of {key}")}) + b"\n" for key in keys]
        (self.base / "items.jsonl").write_bytes(b"".join(lines))

    def store(self) -> HookedFolder | HookedMemory:
        store = self.memory or HookedFolder(self.folder, disk=self.disk, redo_limit_bytes=self.redo_limit_bytes)
        store.before = store.meanwhile = store.after = None
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
    ) -> Summary:
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
            sleep=self.sleep,
            wall_clock=self.wall_clock,
            compact_over_bytes=compact_over_bytes,
        )

        async def main() -> Summary:
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

    def clear(self) -> None:
        """Forget everything that ran, but not the items."""
        self.store().clear()

    def state(self) -> Checkpoint | None:
        store = self.store()
        return store.load().checkpoint

    def records(self) -> list[Record]:
        """Those of the unfinished run, or of the newest that ended, oldest first."""
        with self.store().reader() as reader:
            return [record for _, record in reader.records()]

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
        assert other.go().exit_code == 0
        return (other.base / "out.jsonl").read_bytes()


class Died(DiskError):
    """In the place of a process that is gone: nothing is written after it."""


def dies_after(commits: int, *, landed: bool) -> Callable[[Hooked], None]:
    left = commits

    def step(checkpoint: Checkpoint, records: Sequence[Record]) -> None:
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


@contextmanager
def intact() -> Iterator[None]:
    """No launch in it refuses to continue: its state is whole, its items are there, and its books close."""
    try:
        yield
    except AgentrunError as error:
        raise AssertionError(error.message) from error


async def no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)


async def idle() -> None:
    """Until everything on the loop that can go on has done so."""
    for _ in range(60):
        await asyncio.sleep(0)


def names(count: int) -> list[str]:
    return [f"k{number:03}" for number in range(count)]


async def counting(attempt: Attempt, channel: Channel) -> Outcome:
    """Each item sees what the ones before left, and adds itself."""
    before = attempt.carry or []
    value = attempt.item.data["v"]
    assert await channel(Carry([*before, value])) == Received()
    return Outcome("done", orjson.dumps({"before": before, "of": value}))


def carried(world: World) -> bytes:
    other = World(world.base / "fresh", "memory")
    other.base.mkdir(exist_ok=True)
    other.job = replace(world.job, base=other.base)
    (other.base / "items.jsonl").write_bytes((world.base / "items.jsonl").read_bytes())
    assert other.go(counting, overwrite=True).exit_code == 0
    return (other.base / "out.jsonl").read_bytes()


def interrupted(world: World, count: int, done: int) -> None:
    world.items(*names(count))
    assert world.go(limit=done).exit_code == 4

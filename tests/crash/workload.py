"""What the crash tests run: a small job with a made-up agent, launched as the command would, in a folder on tmpfs."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary
from agentrun.events import Watcher, ignore
from agentrun.job.job import ItemsSpec, Job
from agentrun.job.options import Options
from agentrun.launch.launch import Launch
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import Sync
from agentrun.system.disk import Disk
from crash.model import Operation, Told

REDO_LIMIT_BYTES = 700
"""Three records of items that are done."""
NAME = "job"
AGENT = "v1"
MESSAGE = "it does not work " * 60

Teller = Callable[[Operation], None]


def nobody(operation: Operation) -> None:
    pass


def tmpfs() -> str | None:
    """A folder in memory where there is one: what is tested here is the order of calls, not the drive."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


@contextmanager
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="agentrun-crash-", dir=tmpfs())).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def key_of(index: int) -> str:
    return f"document {index:04}"


def output_of(key: str) -> dict[str, Any]:
    return {"says": key[::-1], "length": len(key)}


def results_of(total: int) -> bytes:
    """What an undisturbed run writes, without any of the code under test."""
    lines = [{"index": n, "key": key_of(n), "output": output_of(key_of(n))} for n in range(total)]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


class TellingStore(FolderStore):
    """Says which items are done as soon as their commit has returned: from then on they are promised."""

    tell: Teller = staticmethod(nobody)

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        sync = super().begin(checkpoint, records)

        def sync_and_tell() -> list[int]:
            refs = sync()
            self.tell(Told(frozenset(record.key for record in records if record.kind == "done")))
            return refs

        return sync_and_tell


@dataclass(slots=True)
class FakeAgent:
    """An executor that does nothing, at once. Items of `fails` fail, with many words."""

    fails: Collection[str] = ()
    on_attempt: Callable[[Attempt], None] | None = None
    attempted: list[str] = field(default_factory=list)

    async def start(self) -> None:
        pass

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        key = attempt.item.key
        self.attempted.append(key)
        if self.on_attempt is not None:
            self.on_attempt(attempt)
        if key in self.fails:
            return Outcome("failed", failure=Failure("exception", MESSAGE, ("agentrun.errors.Fail",)))
        return Outcome("done", orjson.dumps(output_of(key)))

    async def rest(self) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Workload:
    """A job over `total` lines, in `base`."""

    base: Path
    total: int
    concurrency: int = 1
    compact_over_bytes: int = 1

    def lay_out(self) -> None:
        self.base.mkdir(exist_ok=True)
        (self.base / "out").mkdir(exist_ok=True)
        (self.base / "items.txt").write_text("".join(key_of(n) + "\n" for n in range(self.total)))

    @property
    def folder(self) -> Path:
        return self.base / "state" / NAME

    @property
    def output(self) -> Path:
        return self.base / "out" / "results.jsonl"

    @property
    def results(self) -> bytes:
        return results_of(self.total)

    def job(self, **values: Any) -> Job:
        given: dict[str, Any] = {"concurrency": self.concurrency, "crash_limit": 0, "stop_after_failures": 0} | values
        return Job(
            name=NAME,
            base=self.base,
            items=ItemsSpec(kind="lines", pattern="items.txt"),
            agent="fake.py:agent",
            params={},
            output="out/results.jsonl",
            **given,
        )

    def store(self, disk: Disk | None = None, tell: Teller = nobody) -> TellingStore:
        store = TellingStore(self.folder, disk=disk, redo_limit_bytes=REDO_LIMIT_BYTES)
        store.tell = tell
        return store

    def launch(
        self,
        agent: FakeAgent | None = None,
        *,
        disk: Disk | None = None,
        tell: Teller = nobody,
        watcher: Watcher = ignore,
        job: Job | None = None,
        **options: Any,
    ) -> Summary:
        """One launch, from the lock to its summary."""
        launch = Launch(
            job or self.job(),
            self.store(disk, tell),
            agent=AGENT,
            options=Options(**{"wait_seconds": 0.0, **options}),
            watcher=watcher,
            job_json=b"{}\n",
            disk=disk,
            compact_over_bytes=self.compact_over_bytes,
        )
        try:
            nothing_to_do = launch.prepare()
            if nothing_to_do is not None:
                return nothing_to_do
            return asyncio.run(launch.work(agent or FakeAgent()))
        finally:
            launch.close()

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.launch.committer import SMALL_BYTES, Committer
from agentrun.runs.units import Unit
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Entry, Sync


class Watched(MemoryStore):
    """Tells which threads begin a commit, and which finish it."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[tuple[str, str]] = []
        self.noted: list[Mapping[str, Any]] = []

    def note(self, event: Mapping[str, Any]) -> None:
        self.noted.append(event)

    def begin(self, checkpoint: Checkpoint, entries: Sequence[Entry] = (), *, flush: bool = False) -> Sync:
        sync, began = super().begin(checkpoint, entries, flush=flush), threading.current_thread().name

        def watched() -> list[int]:
            self.threads.append((began, threading.current_thread().name))
            return sync()

        return watched


LOOP, THREAD = "MainThread", "agentrun-commit"


class Bench:
    def __init__(self, *, has_thread: bool = True) -> None:
        self.store = Watched()
        self.store.lock()
        self.store.load()
        self.checkpoint = Checkpoint(job="triage", run_id="r1", context={"launches": 1, "date": ""})
        self.committer = Committer(self.store, snapshot=self.snapshot, landed=self.landed, has_thread=has_thread)
        self.landed_rows: list[int] = []

    def snapshot(self, units: Sequence[Unit]) -> Checkpoint:
        self.checkpoint.seq += 1
        return self.checkpoint

    def landed(self, units: Sequence[Unit], refs: Sequence[int]) -> None:
        self.landed_rows += [unit.row for unit in units]

    def commit(self, row: int, *, size: int = 2) -> asyncio.Future[None]:
        fields = {"kind": "done", "key": f"k{row}", "gen": 0, "index": row, "hash": "0" * 16, "agent": "v1"}
        return self.committer.commit(Unit(row, 0, Entry(fields, b'"' + b"x" * (size - 2) + b'"')))


@pytest.mark.parametrize(
    ("has_thread", "size", "threads"),
    [
        (True, 2, (LOOP, THREAD)),
        (True, SMALL_BYTES, (LOOP, THREAD)),
        # To write it would hold up the loop.
        (True, SMALL_BYTES + 1, (THREAD, THREAD)),
        (False, 2, (LOOP, LOOP)),
    ],
)
def test_what_waits_or_is_large_is_the_threads(has_thread: bool, size: int, threads: tuple[str, str]) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)
        await bench.commit(0, size=size)
        bench.committer.close()
        assert bench.store.threads == [threads]

    asyncio.run(main())


def test_while_the_store_is_asked_something_in_the_thread_it_is_not_called_on_the_loop() -> None:
    async def main() -> None:
        bench, may_answer = Bench(), threading.Event()
        answer = bench.committer.do(may_answer.wait)
        commit = bench.commit(0)
        may_answer.set()
        assert await answer
        await commit
        await bench.commit(1)
        bench.committer.close()
        assert bench.store.threads == [(THREAD, THREAD), (LOOP, THREAD)]

    asyncio.run(main())


def fail(*_: object) -> None:
    raise OSError(5, "the source cannot be read")


@pytest.mark.parametrize("has_thread", [True, False])
@pytest.mark.parametrize("where", ["snapshot", "landed"])
def test_what_goes_wrong_beside_the_store_is_told_to_all_who_wait(
    monkeypatch: pytest.MonkeyPatch, where: str, has_thread: bool
) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)
        await bench.commit(0)
        monkeypatch.setattr(bench.committer, f"_{where}", fail)
        for waiting in [bench.commit(1), bench.commit(2), bench.committer.commit_bare()]:
            with pytest.raises(OSError, match="cannot be read"):
                await waiting
        assert bench.committer.has_failed and bench.landed_rows == [0]
        bench.committer.close()

    asyncio.run(main())


def test_after_its_end_the_store_is_left_alone() -> None:
    async def main() -> None:
        bench = Bench()
        bench.commit(0)
        bench.committer.close()
        # The thread has done what was ordered; the loop hears of it only now.
        await asyncio.sleep(0.01)
        assert bench.store.threads == [(LOOP, THREAD)] and not bench.store.noted and not bench.landed_rows

    asyncio.run(main())

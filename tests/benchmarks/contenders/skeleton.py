"""The bare skeleton: what is left of a runner when everything but its loop and its group commit is taken away.

    python -m benchmarks.contenders.skeleton own|inline WIDTH

Slots are asyncio tasks, an attempt is a task of its own, and a slot takes its next item when the last one is on disk.
There is no plan, no ledger, no `running`, no retry, no timeout, no event, no log of an item, no result file.

- `own` has the project's own Committer and FolderStore, with the least that a record and a checkpoint can hold: what
  agentrun's rate is held against.
- `inline` has a committer of thirty lines instead, which writes the same amount by the same calls (a redo part of up to
  16 KiB in a replaced file, a journal behind it): for information, it says what the committer and the store cost.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from msgspec import Raw

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.checkpoint.record import Record
from agentrun.events import Progress
from agentrun.launch.committer import Checkpointing
from agentrun.runs.units import Unit
from agentrun.store.folder.store import REDO_LIMIT_BYTES, FolderStore
from benchmarks import work
from benchmarks.contenders.limits import Replaced

Commit = Callable[[int, str, bytes], Awaitable[None]]


async def agent(data: dict[str, Any]) -> dict[str, str]:
    return work.produce(data)


async def slot(lines: Iterator[tuple[int, bytes]], commit: Commit) -> None:
    for row, line in lines:
        data = orjson.loads(line)
        output = await asyncio.create_task(agent(data))
        await commit(row, data["id"], orjson.dumps(output))


async def run_slots(width: int, commit: Commit) -> None:
    with work.source().open("rb") as file:
        lines = enumerate(file)
        await asyncio.gather(*(slot(lines, commit) for _ in range(width)))


# ---- the project's own group commit


async def own(width: int) -> None:
    store = FolderStore(Path(".agentrun/skeleton").absolute())
    lease = store.lock()
    store.load()
    nothing: Any = NoRun()
    checkpointing = Checkpointing(store, nothing, Progress(), has_thread=True)
    checkpointing.slots = nothing

    async def commit(row: int, key: str, output: bytes) -> None:
        record = Record(kind="done", key=key, gen=0, index=row, hash="", agent="", launch=1, output=Raw(output))
        await checkpointing.commit(Unit(row, row % width, record))

    await run_slots(width, commit)
    checkpointing.close()
    lease.release()


class NoRun:
    """What the group commit asks of a run and of its slots, without either."""

    in_flight: dict[int, object] = {}

    def __init__(self) -> None:
        self.checkpoint = Checkpoint(job="skeleton", run_id="skeleton", context=RunContext(launches=1, date=""))

    def settle(self, units: Sequence[Unit]) -> None: ...

    def advance(self, units: Sequence[Unit]) -> None: ...

    def landed(self, units: Sequence[Unit], refs: Sequence[int]) -> None: ...

    def start(self, units: Sequence[Unit]) -> int:
        return len(units)

    def next_checkpoint(self, in_flight: object) -> Checkpoint:
        self.checkpoint.seq += 1
        return self.checkpoint


# ---- the least that a group commit can be


class Inline:
    """While one batch is being written in a thread, the next one gathers."""

    def __init__(self) -> None:
        self._state = Replaced("state.json")
        self._journal = os.open("journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._redo = b""
        self._gathering: list[tuple[bytes, asyncio.Future[None]]] = []
        self._is_busy = False

    def commit(self, row: int, key: str, output: bytes) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._gathering.append((b'{"kind":"done","key":"%b","output":%b}\n' % (key.encode(), output), done))
        if not self._is_busy:
            self._begin(loop)
        return done

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._gathering, self._is_busy = self._gathering, [], True
        writing = loop.run_in_executor(None, self._write, b"".join(line for line, _ in batch))
        writing.add_done_callback(lambda written: self._end(loop, batch, written))

    def _write(self, lines: bytes) -> None:
        self._redo += lines
        if len(self._redo) > REDO_LIMIT_BYTES:
            os.write(self._journal, self._redo)
            os.fsync(self._journal)
            self._redo = b""
        self._state.write(self._redo)

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[tuple[bytes, asyncio.Future[None]]],
        written: asyncio.Future[None],
    ) -> None:
        written.result()
        self._is_busy = False
        for _, done in batch:
            done.set_result(None)
        if self._gathering:
            self._begin(loop)


async def inline(width: int) -> None:
    await run_slots(width, Inline().commit)


def main() -> None:
    way = {"own": own, "inline": inline}[sys.argv[1]]
    asyncio.run(way(int(sys.argv[2])))


if __name__ == "__main__":
    main()

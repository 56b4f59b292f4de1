"""Group commit: while one commit is being written, finished units gather; the next one takes them all.

The store is called from a thread of its own, so that an fsync never holds up the agents on the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrun.checkpoint import Checkpoint
from agentrun.store.port import Entry, Store


@dataclass(slots=True)
class Unit:
    """A finished unit: its record, and what its slot goes on with once that is on disk."""

    row: int
    slot: int
    entry: Entry


class Committer:
    """Commits on the loop's behalf. `snapshot(units)` makes the checkpoint that includes them; `landed(units, refs)`
    is called on the loop when it is on disk, before anybody who waits is told."""

    def __init__(
        self,
        store: Store,
        *,
        snapshot: Callable[[Sequence[Unit]], Checkpoint],
        landed: Callable[[Sequence[Unit], Sequence[int]], None],
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._landed = landed
        self._loop = asyncio.get_running_loop()
        self._gathering: list[tuple[Unit, asyncio.Future[None]]] = []
        self._bare: list[asyncio.Future[None]] = []
        self._busy = False
        self._error: BaseException | None = None
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="agentrun-commit", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    async def commit(self, unit: Unit) -> None:
        """Return when the unit's checkpoint is on disk."""
        await self._enqueue(unit)

    async def commit_bare(self) -> None:
        """A checkpoint without a record of its own."""
        await self._enqueue(None)

    def _enqueue(self, unit: Unit | None) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        if self._error is not None:
            done.set_exception(self._error)
            return done
        if unit is None:
            self._bare.append(done)
        else:
            self._gathering.append((unit, done))
        if not self._busy:
            self._begin()
        return done

    def _begin(self) -> None:
        gathered, self._gathering = self._gathering, []
        waiters = [done for _, done in gathered] + self._bare
        units = [unit for unit, _ in gathered]
        self._bare, self._busy = [], True
        self._orders.put((self._snapshot(units), units, waiters))

    def _write(self) -> None:
        while (order := self._orders.get()) is not None:
            checkpoint, units, waiters = order
            refs: list[int] = []
            error: BaseException | None = None
            try:
                refs = self._store.commit(checkpoint, [unit.entry for unit in units])
                self._store.note(
                    {
                        "at": checkpoint.updated_at,
                        "event": "checkpoint",
                        "seq": checkpoint.seq,
                        "last_completed": checkpoint.last_completed,
                    }
                )
            except BaseException as caught:
                error = caught
            self._loop.call_soon_threadsafe(self._finish, units, waiters, refs, error)

    def _finish(
        self,
        units: list[Unit],
        waiters: list[asyncio.Future[None]],
        refs: list[int],
        error: BaseException | None,
    ) -> None:
        self._busy = False
        if error is not None:
            # Whether it is on disk is unknown: nothing is acknowledged from here on.
            self._error = error
            waiters += [done for _, done in self._gathering] + self._bare
            self._gathering, self._bare = [], []
            for done in waiters:
                if not done.done():
                    done.set_exception(error)
            return
        self._landed(units, refs)
        for done in waiters:
            if not done.done():
                done.set_result(None)
        if self._gathering or self._bare:
            self._begin()

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join()

"""Group commit: while one commit is being written, finished units gather; the next one takes them all.

The store is called from a thread of its own, so that an fsync never holds up the agents on the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentrun.checkpoint import Checkpoint
from agentrun.store.port import Entry, Store

T = TypeVar("T")


@dataclass(slots=True)
class Unit:
    """A record to commit, and the slot that goes on once it is on disk, if it is one that frees a slot."""

    row: int
    slot: int | None
    entry: Entry
    is_counted: bool = False
    """The ledger has it already."""


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

    def commit(self, unit: Unit) -> asyncio.Future[None]:
        """Done when the unit's checkpoint is on disk."""
        return self._enqueue(unit)

    def commit_bare(self) -> asyncio.Future[None]:
        """A checkpoint without a record of its own."""
        return self._enqueue(None)

    async def do(self, work: Callable[[], T]) -> T:
        """Call the store, which is to be called from one thread, in its thread."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._orders.put((work, done))
        return await done

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
            if len(order) == 2:
                self._do(*order)
                continue
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

    def _do(self, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        def tell(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        try:
            self._loop.call_soon_threadsafe(tell, work(), None)
        except BaseException as error:
            self._loop.call_soon_threadsafe(tell, None, error)

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

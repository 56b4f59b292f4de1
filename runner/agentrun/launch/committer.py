"""Group commit: while one commit is being written, finished units gather; the next one takes them all.

What waits for the disk is done in a thread of its own, so that an fsync never holds up the agents on the loop. What
only goes into the system's memory, and is small, is done on the loop: after each call of the system that thread has to
wait for the interpreter, which the loop is using. With one item at a time there is nobody to hold up, and the way to
another thread and back takes about as long as a good disk's fsync: then all of it is done on the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.runs.units import Unit
from agentrun.store.port import Store

T = TypeVar("T")
SMALL_BYTES = 256 * 1024
"""Of the outputs in one commit: to write more than this would hold up the loop."""


class Committer:
    """Commits on the loop's behalf. `snapshot(units)` makes the checkpoint that includes them; `landed(units, refs)`
    is called on the loop when it is on disk, before anybody who waits is told."""

    def __init__(
        self,
        store: Store,
        *,
        snapshot: Callable[[Sequence[Unit]], Checkpoint],
        landed: Callable[[Sequence[Unit], Sequence[int]], None],
        has_thread: bool = True,
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._landed = landed
        self._loop = asyncio.get_running_loop()
        self._gathering: list[Unit] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._busy = False
        self._asked = 0
        """How many questions the store has still to answer, in the thread."""
        self._is_closed = False
        self._error: BaseException | None = None
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if has_thread:
            self._thread = threading.Thread(target=self._work, name="agentrun-commit", daemon=True)
            self._thread.start()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def commit(self, unit: Unit) -> asyncio.Future[None]:
        """Done when the unit's checkpoint is on disk."""
        return self._enqueue([unit])

    def commit_all(self, units: Sequence[Unit]) -> asyncio.Future[None]:
        """Done when all of them are, in one checkpoint."""
        return self._enqueue(units)

    def commit_bare(self) -> asyncio.Future[None]:
        """A checkpoint without a record of its own."""
        return self._enqueue([])

    def do(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have the store asked something that may take long: where it commits, between two commits."""
        done: asyncio.Future[T] = self._loop.create_future()

        def tell(result: T | None, error: BaseException | None) -> None:
            self._asked -= 1
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        self._asked += 1
        self._order(work, tell)
        return done

    def _enqueue(self, units: Sequence[Unit]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        if self._error is not None:
            done.set_exception(self._error)
            return done
        self._gathering += units
        self._waiting.append(done)
        if not self._busy:
            self._begin()
        return done

    def _begin(self) -> None:
        units, self._gathering = self._gathering, []
        waiting, self._waiting = self._waiting, []
        self._busy = True
        prepared, error = _try(lambda: self._prepare(units))
        if prepared is None:
            self._finish(units, waiting, {}, None, error)
        else:
            note, write = prepared
            self._order(write, partial(self._finish, units, waiting, note))

    def _prepare(self, units: Sequence[Unit]) -> tuple[dict[str, Any], Callable[[], list[int]]]:
        """The commit's line in the log, and what is left to do of it."""
        checkpoint = self._snapshot(units)
        note = {
            "at": checkpoint.updated_at,
            "event": "checkpoint",
            "seq": checkpoint.seq,
            "last_completed": checkpoint.last_completed,
        }
        entries = [unit.entry for unit in units]
        # A store is called from one thread at a time: not while it is asked something in the other one.
        if self._asked or sum(len(entry.output) for entry in entries if entry.output is not None) > SMALL_BYTES:
            return note, partial(self._store.commit, checkpoint, entries)
        return note, self._store.begin(checkpoint, entries)

    def _order(self, work: Callable[[], T], tell: Callable[[T | None, BaseException | None], None]) -> None:
        """`tell` is called on the loop."""
        if self._thread is not None:
            self._orders.put((work, tell))
        else:
            tell(*_try(work))

    def _work(self) -> None:
        """The thread's."""
        while (order := self._orders.get()) is not None:
            work, tell = order
            self._loop.call_soon_threadsafe(tell, *_try(work))

    def _finish(
        self,
        units: Sequence[Unit],
        waiting: list[asyncio.Future[None]],
        note: dict[str, Any],
        refs: list[int] | None,
        error: BaseException | None,
    ) -> None:
        self._busy = False
        if self._is_closed:
            return
        if error is None:
            self._store.note(note)
            _, error = _try(lambda: self._landed(units, refs or []))
        if error is not None:
            # Whether it is on disk is unknown: nothing is acknowledged from here on.
            self._error = error
            waiting += self._waiting
            self._gathering, self._waiting = [], []
            for done in waiting:
                if not done.done():
                    done.set_exception(error)
            return
        if self._waiting:
            # Before anybody is told: all that they do next waits for the disk again.
            self._begin()
        for done in waiting:
            if not done.done():
                done.set_result(None)

    def close(self) -> None:
        """What is ordered by now is done, and nobody told of it any more: the store is about to be released."""
        self._is_closed = True
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()


def _try(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:
        return None, error

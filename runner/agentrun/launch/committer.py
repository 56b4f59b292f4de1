"""Group commit, and the order of things around it: count, take the next items, write, start them.

While one commit is being written, finished units gather; the next one takes them all. The part that waits for the disk
runs in a thread of its own, so that an fsync never blocks the agents on the loop. The part that only goes into the
system's memory, and is small, runs on the loop: after each system call the thread has to wait for the interpreter,
which the loop is using. With one item at a time nobody can be blocked, and the way to another thread and back takes
about as long as a good disk's fsync: then everything runs on the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from agentrun.checkpoint.checkpoint import Checkpoint
from agentrun.checkpoint.record import Record
from agentrun.events import Progress
from agentrun.runs.run import Run
from agentrun.runs.units import Unit
from agentrun.store.port import HistoryEvent, Store

if TYPE_CHECKING:
    from agentrun.launch.slots import Slots

T = TypeVar("T")
_record: Callable[[Unit], Record] = attrgetter("record")
SMALL_BYTES = 256 * 1024
"""The most bytes of outputs in one commit that are written on the loop: more would block it."""


class Checkpointing:
    """Commits on the loop's behalf. `slots` is set before the first commit."""

    slots: Slots

    def __init__(self, store: Store, run: Run, progress: Progress, *, has_thread: bool) -> None:
        self._store = store
        self._run = run
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Unit] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._is_writing = False
        self._asked = 0
        """How many questions the store has still to answer, in the thread."""
        self._is_closed = False
        self._error: BaseException | None = None
        self.landed = 0
        """How many units are on disk."""
        self._orders: queue.SimpleQueue[tuple[Callable[[], Any], Callable[..., None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if has_thread:
            self._thread = threading.Thread(target=self._obey, name="agentrun-commit", daemon=True)
            self._thread.start()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def commit(self, *units: Unit) -> asyncio.Future[None]:
        """Done when the units are on disk, all in one checkpoint; without any, when a checkpoint is."""
        done: asyncio.Future[None] = self._loop.create_future()
        if self._error is not None:
            done.set_exception(self._error)
            return done
        self._gathered += units
        self._waiting.append(done)
        if not self._is_writing:
            self._write()
        return done

    def ask(self, question: Callable[[], T]) -> asyncio.Future[T]:
        """Ask the store something that may take long: where it commits, between two commits."""
        answered: asyncio.Future[T] = self._loop.create_future()

        def tell(answer: T | None, error: BaseException | None) -> None:
            self._asked -= 1
            if answered.done():
                return
            if error is not None:
                answered.set_exception(error)
            else:
                answered.set_result(answer)  # type: ignore[arg-type]

        self._asked += 1
        self._order(question, tell)
        return answered

    def read(self, refs: Sequence[int]) -> asyncio.Future[list[Record]]:
        """The records at these refs, read between two commits."""
        return self.ask(lambda: list(self._store.read(refs)))

    # ---- the order of a commit

    def _write(self) -> None:
        units, self._gathered = self._gathered, []
        waiting, self._waiting = self._waiting, []
        self._is_writing = True
        try:
            checkpoint, records = self._next_batch(units), list(map(_record, units))
            if self._thread is None:
                self._written(units, waiting, self._store.commit(checkpoint, records), None)
            elif self._is_quick(records):
                self._order(self._store.begin(checkpoint, records), partial(self._written, units, waiting))
            else:
                self._order(partial(self._store.commit, checkpoint, records), partial(self._written, units, waiting))
        except BaseException as error:
            self._written(units, waiting, None, error)

    def _next_batch(self, units: Sequence[Unit]) -> Checkpoint:
        self._run.settle(units)
        # `running` must name what each freed or idle slot runs next before that begins.
        self.slots.advance(units)
        return self._run.next_checkpoint(self.slots.in_flight)

    def _is_quick(self, records: Sequence[Record]) -> bool:
        """Whether the first half of the commit would not block the loop."""
        # A store is called from one thread at a time: not while it answers a question in the other one.
        return not self._asked and sum(len(bytes(record.output)) for record in records) <= SMALL_BYTES

    def _written(
        self,
        units: Sequence[Unit],
        waiting: list[asyncio.Future[None]],
        refs: list[int] | None,
        error: BaseException | None,
    ) -> None:
        """On the loop: the commit is on disk, or nobody knows whether it is."""
        self._is_writing = False
        if self._is_closed:
            return
        if error is None:
            try:
                self._on_disk(units, refs or [])
            except BaseException as raised:
                error = raised
        if error is not None:
            # Nothing is acknowledged from here on.
            self._error = error
            waiting += self._waiting
            self._gathered, self._waiting = [], []
        elif self._waiting:
            # Before anybody is told: everything that they do next waits for the disk again.
            self._write()
        for done in waiting:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    def _on_disk(self, units: Sequence[Unit], refs: Sequence[int]) -> None:
        """Before those who wait are told."""
        checkpoint = self._run.checkpoint
        counts = checkpoint.counts
        self._store.note(
            HistoryEvent(
                at=checkpoint.updated_at,
                event="checkpoint",
                seq=checkpoint.seq,
                last_completed=checkpoint.last_completed,
                settled=checkpoint.total - counts.get("pending", 0) - counts.get("waiting", 0),
            )
        )
        self._run.landed(units, refs)
        self.landed += len(units)
        progress = self._progress
        progress.counts, progress.total, progress.running = checkpoint.counts, checkpoint.total, len(checkpoint.running)
        progress.cost, progress.held_back = checkpoint.usage.cost, self.slots.held_back
        progress.settled_here += self.slots.start(units)

    # ---- the thread

    def _order(self, work: Callable[[], T], tell: Callable[[T | None, BaseException | None], None]) -> None:
        """Have it done; `tell` is called on the loop."""
        if self._thread is not None:
            self._orders.put((work, tell))
            return
        try:
            done, error = work(), None
        except BaseException as raised:
            tell(None, raised)
        else:
            tell(done, error)

    def _obey(self) -> None:
        """What the thread runs."""
        while (order := self._orders.get()) is not None:
            work, tell = order
            try:
                done, error = work(), None
            except BaseException as raised:
                done, error = None, raised
            self._loop.call_soon_threadsafe(tell, done, error)

    def close(self) -> None:
        """What is ordered by now is done, but nobody is told any more: the store is about to be released."""
        self._is_closed = True
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()

"""The order around a commit: count, take the next items, write, tell, start. And which thread does what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.checkpoint.ledger import Ledger
from agentrun.checkpoint.record import Record
from agentrun.events import Progress
from agentrun.item import Item, key_digest
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.committer import SMALL_BYTES, Checkpointing
from agentrun.runs.plan import Plan
from agentrun.runs.run import Run
from agentrun.runs.units import Unit, Work
from agentrun.store.memory import MemoryStore
from agentrun.store.port import HistoryEvent, Sync
from unit.records import make_record

LOOP, THREAD = "MainThread", "agentrun-commit"
JOB = Job(name="triage", base=Path("/"), items=ItemsSpec(kind="lines", pattern="-"), params={}, output="out.jsonl")
ITEMS = 20


class Watched(MemoryStore):
    """Says which threads begin a commit and which finish it; a test may hold it up or make it fail."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log
        self.threads: list[tuple[str, str]] = []
        self.commits: list[list[str]] = []
        self.running: list[list[str]] = []
        self.before_sync: Callable[[], object] = lambda: None

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        sync, began = super().begin(checkpoint, records), threading.current_thread().name
        keys, running = [record.key for record in records], [one.key for one in checkpoint.running]

        def watched() -> list[int]:
            self.threads.append((began, threading.current_thread().name))
            self.before_sync()
            refs = sync()
            self.log.append("write")
            self.commits.append(keys)
            self.running.append(running)
            return refs

        return watched

    def note(self, event: HistoryEvent) -> None:
        super().note(event)
        self.log.append("note")


class WatchedRun(Run):
    """A run that logs what it is told."""

    __slots__ = ("fails_at", "log")

    log: list[str]
    fails_at: str

    def _step(self, name: str) -> None:
        self.log.append(name)
        if self.fails_at == name:
            raise OSError(5, "the source cannot be read")

    def settle(self, units: Sequence[Unit]) -> None:
        self._step("settle")
        super().settle(units)

    def landed(self, units: Sequence[Unit], refs: Sequence[int]) -> None:
        self._step("landed")
        super().landed(units, refs)


class FakeSlots:
    """Each slot that is freed takes the next of the items."""

    held_back = ""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.in_flight: dict[int, Work] = {}
        self.started: list[list[int]] = []
        self._next = iter(range(ITEMS))

    def advance(self, units: Sequence[Unit]) -> None:
        self.log.append("advance")
        for unit in units:
            if unit.slot is not None:
                row = next(self._next)
                self.in_flight[unit.slot] = Work(row, Item(row, f"k{row}", line=""))

    def start(self, units: Sequence[Unit] = ()) -> int:
        self.log.append("start")
        self.started.append([unit.row for unit in units])
        return sum(unit.slot is not None for unit in units)


class Bench:
    def __init__(self, *, has_thread: bool = True) -> None:
        self.log: list[str] = []
        self.store = Watched(self.log)
        self.store.lock()
        self.store.load()
        ledger = Ledger()
        for row in range(ITEMS):
            ledger.order.append(ledger.row_of(key_digest(f"k{row}")))
        ledger.set_order(ledger.order)
        checkpoint = Checkpoint(job="triage", run_id="r1", context=RunContext(launches=1, date="2026-05-04"))
        self.run = WatchedRun(JOB, "v1", checkpoint, False, ledger, Plan())
        self.run.log, self.run.fails_at = self.log, ""
        self.progress = Progress()
        self.slots = FakeSlots(self.log)
        self.checkpointing = Checkpointing(self.store, self.run, self.progress, has_thread=has_thread)
        self.checkpointing.slots = self.slots  # type: ignore[assignment]

    def commit(self, row: int, *, slot: int | None = 0, size: int = 2) -> asyncio.Future[None]:
        record = make_record(f"k{row}", index=row, output="x" * (size - 2))
        return self.checkpointing.commit(Unit(row, slot, record))

    def stored(self) -> dict[str, int]:
        return {record.key: record.seq for _, record in self.store.scan()}

    def held(self) -> threading.Event:
        """The next commit waits in its second half until this is set."""
        may_write = threading.Event()
        self.store.before_sync = lambda: may_write.wait(20)
        return may_write


@pytest.mark.parametrize("has_thread", [True, False])
def test_units_are_counted_then_slots_take_their_next_items_and_start_them_once_that_is_on_disk(
    has_thread: bool,
) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)
        await bench.commit(5, slot=3)
        bench.log.append("told")
        bench.checkpointing.close()
        assert bench.log == ["settle", "advance", "write", "note", "landed", "start", "told"]
        # The checkpoint that has the unit names what its slot runs next, before that begins.
        assert bench.store.running == [["k0"]] and bench.slots.started == [[5]]
        assert bench.run.ledger.refs[5] == 0 and bench.run.checkpoint.counts["done"] == 1

    asyncio.run(main())


def test_nothing_starts_and_nobody_is_told_while_the_commit_is_being_written() -> None:
    async def main() -> None:
        bench = Bench()
        may_write = bench.held()
        done = bench.commit(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert bench.log == ["settle", "advance"] and not done.done()
        assert bench.progress.done == 0 and not bench.slots.started
        may_write.set()
        await done
        assert bench.progress.done == 1 and bench.slots.started == [[0]]
        bench.checkpointing.close()

    asyncio.run(main())


def test_units_that_finish_while_a_commit_is_written_share_the_next_one() -> None:
    async def main() -> None:
        bench = Bench()
        may_write = bench.held()
        waiting = [bench.commit(row, slot=row) for row in range(5)]
        waiting.append(bench.checkpointing.commit())
        may_write.set()
        await asyncio.gather(*waiting)
        assert bench.store.commits == [["k0"], ["k1", "k2", "k3", "k4"]]
        assert bench.stored() == {"k0": 1, "k1": 2, "k2": 2, "k3": 2, "k4": 2}
        assert bench.checkpointing.landed == 5 and bench.progress.settled_here == 5
        bench.checkpointing.close()

    asyncio.run(main())


def test_units_given_together_are_in_one_checkpoint_and_one_without_any_is_a_checkpoint_too() -> None:
    async def main() -> None:
        bench = Bench(has_thread=False)
        await bench.checkpointing.commit(*(Unit(row, None, make_record(f"k{row}", index=row)) for row in range(3)))
        await bench.checkpointing.commit()
        assert bench.store.commits == [["k0", "k1", "k2"], []] and bench.run.checkpoint.seq == 2
        # What people post settles no item of this launch.
        assert bench.progress.settled_here == 0 and bench.checkpointing.landed == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("has_thread", "size", "threads"),
    [
        (True, 2, (LOOP, THREAD)),
        (True, SMALL_BYTES, (LOOP, THREAD)),
        # Writing it would block the loop.
        (True, SMALL_BYTES + 1, (THREAD, THREAD)),
        (False, 2, (LOOP, LOOP)),
    ],
)
def test_what_waits_or_is_large_is_the_threads(has_thread: bool, size: int, threads: tuple[str, str]) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)
        await bench.commit(0, size=size)
        bench.checkpointing.close()
        assert bench.store.threads == [threads]

    asyncio.run(main())


def test_while_the_store_is_asked_something_in_the_thread_it_is_not_called_on_the_loop() -> None:
    async def main() -> None:
        bench, may_answer = Bench(), threading.Event()
        answer = bench.checkpointing.ask(lambda: may_answer.wait(20))
        commit = bench.commit(0)
        may_answer.set()
        assert await answer
        await commit
        await bench.commit(1)
        bench.checkpointing.close()
        assert bench.store.threads == [(THREAD, THREAD), (LOOP, THREAD)]

    asyncio.run(main())


@pytest.mark.parametrize("has_thread", [True, False])
def test_a_question_is_answered_between_commits_and_its_error_is_the_askers_alone(has_thread: bool) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)
        commit = bench.commit(0)
        assert await bench.checkpointing.ask(lambda: bench.store.commits.copy()) == [["k0"]]
        await commit
        with pytest.raises(ZeroDivisionError):
            await bench.checkpointing.ask(lambda: 1 // 0)
        given_up = bench.checkpointing.ask(lambda: 1)
        given_up.cancel()
        await bench.commit(1)
        assert not bench.checkpointing.has_failed and bench.stored() == {"k0": 1, "k1": 2}
        bench.checkpointing.close()

    asyncio.run(main())


@pytest.mark.parametrize("has_thread", [True, False])
@pytest.mark.parametrize("where", ["settle", "landed"])
def test_what_goes_wrong_beside_the_store_is_told_to_all_who_wait(where: str, has_thread: bool) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)
        await bench.commit(0)
        bench.run.fails_at = where
        for waiting in [bench.commit(1), bench.commit(2), bench.checkpointing.commit()]:
            with pytest.raises(OSError, match="cannot be read"):
                await waiting
        assert bench.checkpointing.has_failed and bench.checkpointing.landed == 1
        assert bench.slots.started == [[0]] and bench.progress.settled_here == 1
        bench.checkpointing.close()

    asyncio.run(main())


@pytest.mark.parametrize("has_thread", [True, False])
def test_after_an_error_of_the_store_nothing_is_acknowledged_and_it_is_not_called_again(has_thread: bool) -> None:
    async def main() -> None:
        bench = Bench(has_thread=has_thread)

        def fail() -> None:
            raise OSError(28, "No space left on device")

        bench.store.before_sync = fail
        for waiting in [bench.commit(0), bench.commit(1), bench.commit(2)]:
            with pytest.raises(OSError, match="No space"):
                await waiting
        assert bench.checkpointing.has_failed and len(bench.store.threads) == 1
        assert bench.stored() == {} and not bench.slots.started and bench.progress.done == 0
        bench.checkpointing.close()

    asyncio.run(main())


def test_after_its_end_the_store_is_left_alone() -> None:
    async def main() -> None:
        bench = Bench()
        waiting = bench.commit(0)
        bench.checkpointing.close()
        # The thread has done what was ordered; the loop hears of it only now.
        await asyncio.sleep(0.01)
        assert bench.store.threads == [(LOOP, THREAD)]
        assert not bench.store.notes and not bench.checkpointing.landed and not waiting.done()

    asyncio.run(main())

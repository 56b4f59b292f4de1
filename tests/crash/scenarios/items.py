"""A run of items one after another: none is lost, run twice or out of order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import orjson

from agentrun.agents.attempt import Attempt
from agentrun.checkpoint.ledger import PENDING
from agentrun.checkpoint.record import Try
from agentrun.checkpoint.summary import Summary, first_checkpoint
from agentrun.items.open import open_source
from agentrun.job.options import Options
from agentrun.outputs.results import result_lines, write_results
from agentrun.runs.feed import feed
from agentrun.runs.recovery import recover
from agentrun.runs.units import Ended, Unit
from agentrun.system.disk import Disk
from crash.disks import CALLS
from crash.faults import starting_points
from crash.harness import DyingScenario, Fault, Forked, Launched, Memory, freeze
from crash.inspection import BEFORE, Stage, check_promised, go_on, look
from crash.model import Operation, State, Told
from crash.workload import FakeAgent, Workload, key_of, output_of, scratch

ACKNOWLEDGED, COMPLETED, BEGUN_AGAIN, BEGAN = range(4)
"""Places in the memory that outlives a launch."""


class Items(DyingScenario):
    """`lightly`: with the parts of a launch, one after another, without a loop and a commit thread. Killed within
    `most_ms`, counted from the fork at every other kill on average, else from the first item, so that kills fall
    everywhere, however slow the machine is."""

    moments = tuple((call, after) for call in CALLS for after in (False, True))

    def __init__(self, *, total: int, most_ms: float, lightly: bool, compacts: bool) -> None:
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        compact_over_bytes = 1 if compacts else 1 << 30
        self._workload = Workload(self._base / "run", total, compact_over_bytes=compact_over_bytes)
        self._workload.lay_out()
        self._stage = Stage(self._workload)
        self._memory = Memory()
        self._most_ms = most_ms
        self._lightly = lightly
        self._points: dict[str, State] = {}
        self._done: frozenset[str] = frozenset()
        """Those that were on disk when the last launch had died."""
        self._in_order = True
        """A run from its beginning, in which nothing fails: what is done are the first items."""
        self._is_complete = False

    def warm_up(self) -> None:
        self._run()
        if self._workload.output.read_bytes() != self._workload.results:
            raise Fault("an undisturbed run has other results")
        freeze()

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def close(self) -> None:
        self._closing.close()

    def begin(self, chance: random.Random) -> None:
        self._show(BEFORE)

    def start(self, chance: random.Random) -> Launched:
        self._memory[BEGAN] = 0
        return self._fork(self._run)

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        if chance.random() < 0.5:
            launched.reaches(lambda: self._memory[BEGAN], "the first item")
        time.sleep(chance.uniform(0.0, self._most_ms / 1000))

    def check(self, ended: int) -> None:
        if again := self._memory[BEGUN_AGAIN]:
            raise Fault(f"item {again - 1} was begun again when it was finished")
        if self._in_order:
            self._check_order()
            self._is_complete = bool(self._memory[COMPLETED])
        else:
            self._check_promises()

    def check_complete(self) -> None:
        if self._workload.output.read_bytes() != self._workload.results:
            raise Fault("the results are wrong")

    # ---- death at a call

    def starting_points(self) -> Iterator[str]:
        for name, state in list(starting_points(self._workload)):
            self._points[name] = state
            yield name

    def go_to(self, point: str) -> None:
        self._show(self._points[point])
        self._done = look(self._workload).done
        self._in_order = False

    def start_on(self, disk: Disk | None) -> Launched:
        self._memory[ACKNOWLEDGED] = 0
        return self._fork(lambda: self._launch(disk))

    # ----

    def _show(self, state: State) -> None:
        self._stage.disturbed()
        self._stage.show(dict(state))
        self._stage.disturbed()
        self._memory.clear()
        self._done, self._in_order, self._is_complete = frozenset(), True, False

    def _fork(self, launch: Callable[[], int]) -> Forked:
        return Forked(launch, self._base / "complaints")

    def _check_order(self) -> None:
        acknowledged, store = self._memory[ACKNOWLEDGED], self._workload.store()
        loaded = store.load()
        if loaded.checkpoint is None or loaded.finished is not None:
            if store.summaries():
                self.check_complete()
            elif acknowledged:
                raise Fault(f"{acknowledged} items lost: there is no run")
            return
        if self._memory[COMPLETED]:
            raise Fault("a run that was complete is not")
        found = [record.key for _, record in store.scan()]
        if found != [key_of(n) for n in range(len(found))]:
            raise Fault(f"lost, twice or out of order: {found}")
        if len(found) < acknowledged:
            raise Fault(f"lost: {acknowledged} were acknowledged, {len(found)} are there")
        self._memory[ACKNOWLEDGED] = len(found)

    def _check_promises(self) -> None:
        found = look(self._workload)
        check_promised(self._workload, found, told=self._done, completed=bool(self._memory[COMPLETED]))
        if not found.is_finished and len(found.done) < len(self._done) + self._memory[ACKNOWLEDGED]:
            raise Fault("an acknowledged item is lost")
        self._done, self._is_complete = found.done, found.is_finished

    # ---- in the child

    def _run(self) -> int:
        return self._run_parts() if self._lightly else self._run_launch()

    def _run_launch(self) -> int:
        """One launch that says in shared memory what it has promised."""
        memory = self._memory

        def tell(operation: Operation) -> None:
            if isinstance(operation, Told) and operation.keys:
                memory[ACKNOWLEDGED] += len(operation.keys)

        def on_attempt(attempt: Attempt) -> None:
            index = attempt.item.index
            memory[BEGAN] = 1
            if index < memory[ACKNOWLEDGED]:
                memory[BEGUN_AGAIN] = index + 1
            # A slot takes the next item only when the last one's checkpoint is on disk.
            memory[ACKNOWLEDGED] = max(memory[ACKNOWLEDGED], index)

        summary = go_on(self._workload, FakeAgent(on_attempt=on_attempt), tell=tell)
        memory[COMPLETED] |= summary.exit_code == 0
        return summary.exit_code

    def _launch(self, disk: Disk | None) -> int:
        """One launch of a run in which items may be done in any order."""
        memory, known = self._memory, set(self._done)

        def tell(operation: Operation) -> None:
            if isinstance(operation, Told):
                memory[ACKNOWLEDGED] += len(operation.keys)
                known.update(operation.keys)

        def on_attempt(attempt: Attempt) -> None:
            if attempt.item.key in known:
                memory[BEGUN_AGAIN] = attempt.item.index + 1

        summary = self._workload.launch(FakeAgent(on_attempt=on_attempt), disk=disk, tell=tell)
        memory[COMPLETED] |= summary.exit_code == 0
        return summary.exit_code

    def _run_parts(self) -> int:
        memory, workload = self._memory, self._workload
        job, store = workload.job(), workload.store()
        lease = store.lock(wait_seconds=0.0)
        loaded = store.load()
        if loaded.finished is not None:
            store.finish(loaded.finished)
        if loaded.finished is not None or (loaded.checkpoint is None and store.summaries()):
            memory[COMPLETED] = 1
            lease.release()
            return 0
        checkpoint = loaded.checkpoint or first_checkpoint(job, number=1)
        source = open_source(job.items, job.base)
        run = recover(store, job, source, checkpoint, agent="v1", options=Options())
        ledger = run.ledger
        context = checkpoint.context
        context.identity, context.launches = job.identity(), context.launches + 1
        store.commit(run.next_checkpoint({}))
        store.prune()
        memory[BEGAN] = 1
        for work in feed(source, ledger, lambda row: ledger.states[row] == PENDING):
            if work.item.index < memory[ACKNOWLEDGED]:
                memory[BEGUN_AGAIN] = work.item.index + 1
            tries = [Try(launch=1, number=1, at=0.0, seconds=0.0)]
            ended = Ended("done", orjson.dumps(output_of(work.item.key)), tries=tries)
            unit = Unit(work.row, 0, run.record(work, ended, None))
            run.settle([unit])
            (ledger.refs[work.row],) = store.commit(run.next_checkpoint({}), [unit.record])
            memory[ACKNOWLEDGED] = work.item.index + 1
        store.commit(run.next_checkpoint({}))
        summary = Summary.of(checkpoint, status="finished")
        summary.output = write_results(result_lines(ledger, store), run.output, Disk())
        store.finish(summary)
        memory[COMPLETED] = 1
        lease.release()
        return 0


def make(*, total: int = 40, most_ms: float = 5.0, lightly: bool = False, compacts: bool = False) -> Items:
    return Items(total=total, most_ms=most_ms, lightly=lightly, compacts=compacts)

"""Servers that refuse, in virtual time: the real attempts, slots and committer, with a loop whose clock only jumps.

Nothing of the law is here: a server knows how much it allows, and the launch finds that out.
"""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrun.agents.attempt import Attempt, Channel, Outcome
from agentrun.agents.failure import Failure
from agentrun.checkpoint.checkpoint import Checkpoint, RunContext, Speed
from agentrun.checkpoint.ledger import Ledger
from agentrun.checkpoint.record import Record
from agentrun.events import Event, Progress
from agentrun.item import Item, key_digest
from agentrun.job.job import ItemsSpec, Job
from agentrun.launch.attempts import Attempts
from agentrun.launch.committer import Checkpointing
from agentrun.launch.slots import Slots
from agentrun.launch.stopping import StopReason
from agentrun.outputs.files import ItemFiles
from agentrun.outputs.logs import ItemLogs
from agentrun.runs.plan import Plan
from agentrun.runs.run import Run
from agentrun.runs.units import Work
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Sync

REFUSAL_SECONDS = 0.02
BEGAN = 1020.0


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = BEGAN

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits, and nothing will happen"
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Whoever sleeps wakes at once, at the time to which it wanted to sleep."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def refusal(status: int, asked: float | None) -> Outcome:
    return Outcome(
        "failed",
        failure=Failure(
            "exception", "slow down", types=("openai.RateLimitError",), status=status, retry_after_seconds=asked
        ),
    )


class Server:
    """Answers after a log-normal time, and refuses at once what its limit does not allow."""

    status = 429

    def __init__(self, seed: int = 0, *, seconds: float = math.exp(-1.6), spread: float = 0.5) -> None:
        self.chance = random.Random(seed)
        self._log_seconds, self._spread = math.log(seconds), spread
        self.accepted = self.refused = self.flying = self.most_flying = 0
        self.loop: asyncio.AbstractEventLoop

    @property
    def now(self) -> float:
        return self.loop.time()

    @property
    def mean_seconds(self) -> float:
        return math.exp(self._log_seconds + self._spread**2 / 2)

    def allows(self) -> tuple[bool, float | None]:
        """Whether the request is accepted; otherwise perhaps how long to wait."""
        return True, None

    async def call(self, attempt: Attempt, channel: Channel) -> Outcome:
        allowed, asked = self.allows()
        if not allowed:
            self.refused += 1
            await asyncio.sleep(REFUSAL_SECONDS)
            return refusal(self.status, asked)
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        await asyncio.sleep(self.chance.lognormvariate(self._log_seconds, self._spread))
        self.flying -= 1
        self.accepted += 1
        return Outcome("done", b'"yes"')


class Bucket(Server):
    """So many a second, and as many at once, or as it `holds`."""

    def __init__(
        self, *given: Any, per_second: float = 20.0, holds: float | None = None, asks: bool = True, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._rate, self._at, self._asks = per_second, BEGAN, asks
        self._holds = self._tokens = per_second if holds is None else holds

    def allows(self) -> tuple[bool, float | None]:
        self._tokens = min(self._holds, self._tokens + (self.now - self._at) * self._rate)
        self._at = self.now
        if self._tokens < 1:
            return False, 1.0 if self._asks else None
        self._tokens -= 1
        return True, None


class Window(Server):
    """So many in each window of so many seconds, all at once if one likes."""

    def __init__(self, *given: Any, most: int = 20, window: float = 1.0, asks: bool = True, **more: Any) -> None:
        super().__init__(*given, **more)
        self._most, self._window, self._asks = most, window, asks
        self._number, self._count = -1, 0

    def allows(self) -> tuple[bool, float | None]:
        number = int(self.now // self._window)
        if number != self._number:
            self._number, self._count = number, 0
        if self._count >= self._most:
            return False, (number + 1) * self._window - self.now if self._asks else None
        self._count += 1
        return True, None


class Crowded(Server):
    """So many at the same time."""

    status = 529

    def __init__(self, *given: Any, most: int = 8, **more: Any) -> None:
        super().__init__(*given, **more)
        self._most = most

    def allows(self) -> tuple[bool, float | None]:
        return self.flying < self._most, None


class Shared(Server):
    """Others use the same key: one in ten is refused, whatever we do."""

    def allows(self) -> tuple[bool, float | None]:
        return self.chance.random() > 0.1, 1.0


class _Executor:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def run(self, attempt: Attempt, channel: Channel) -> Outcome:
        return await self._server.call(attempt, channel)


@dataclass
class Night:
    """What became of a batch."""

    seconds: float
    counts: dict[str, int]
    store: Store
    stopped: StopReason | None
    events: list[Event] = field(default_factory=list)


class Store(MemoryStore):
    """Looks at what each checkpoint names as running."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: Slots
        self.running: set[str] = set()
        self.named: list[int] = []
        """How many each checkpoint names."""
        self.too_wide: list[tuple[int, int]] = []
        """Of checkpoints that name a new item although no more may be in flight: how many they name, and the width."""

    def begin(self, checkpoint: Checkpoint, records: Sequence[Record] = ()) -> Sync:
        running = {one.key for one in checkpoint.running}
        if running - self.running and len(running) > self.slots.width:
            self.too_wide.append((len(running), self.slots.width))
        self.running = running
        self.named.append(len(running))
        return super().begin(checkpoint, records)


def run_batch(
    server: Server,
    folder: Path,
    *,
    items: int = 500,
    concurrency: int = 64,
    limit: int | None = None,
    speed: Speed | None = None,
    **settings: Any,
) -> Night:
    """A launch over so many items, at that server; `speed` is what the launch before has found."""
    loop = VirtualLoop()
    server.loop = loop
    try:
        return loop.run_until_complete(_run(server, folder, items, concurrency, limit, speed, settings))
    finally:
        loop.close()


async def _run(
    server: Server,
    folder: Path,
    items: int,
    concurrency: int,
    limit: int | None,
    speed: Speed | None,
    settings: dict[str, Any],
) -> Night:
    clock: Callable[[], float] = asyncio.get_running_loop().time
    job = Job(
        name="night",
        base=folder,
        items=ItemsSpec(kind="lines", pattern="-"),
        agent="a.py:f",
        params={},
        output="out.jsonl",
        concurrency=concurrency,
        keep_logs=0,
        **settings,
    )
    ledger, store = Ledger(), Store()
    events: list[Event] = []
    for index in range(items):
        ledger.order.append(ledger.row_of(key_digest(f"k{index}")))
    ledger.set_order(ledger.order)
    run = Run(
        job,
        "v1",
        Checkpoint(job="night", run_id="r1", context=RunContext(launches=1, date="2026-05-04", speed=speed)),
        False,
        ledger,
        Plan(),
    )
    store.lock()
    store.load()
    checkpointing = Checkpointing(store, run, Progress(), has_thread=False)
    logs = ItemLogs(folder)
    attempts = Attempts(
        _Executor(server),  # type: ignore[arg-type]
        job,
        run=run,
        launch=1,
        commit=checkpointing.commit,
        recall=lambda refs: checkpointing.ask(lambda: list(store.read(refs))),
        logs=logs,
        files=ItemFiles(folder),
        watcher=events.append,
        clock=clock,
        wall_clock=clock,
    )
    slots = Slots(run, attempts, checkpointing, logs=logs, watcher=events.append, limit=limit, clock=clock)
    checkpointing.slots = store.slots = slots
    attempts.use(slots)
    feed = (Work(row, Item(index, f"k{index}", line="")) for index, row in enumerate(ledger.order))
    slots.open(feed, concurrency)
    began = clock()
    await checkpointing.commit()
    await slots.run()
    return Night(clock() - began, dict(ledger.counts), store, slots.stop_reason, events)

"""The real command over every kind of agent: nothing finished is lost or run again, and the results are those of an
undisturbed run."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

from crash.command_line import Place, place
from crash.harness import Fault, Launched, Scenario, Started
from waiting import eventually

STARTUP_SECONDS = 0.4
TOTALS = {"async": 200, "thread": 200, "process": 120, "command": 60}


class Command(Scenario):
    def __init__(self, kind: str, concurrency: int, environ: dict[str, str]) -> None:
        self._kind, self._concurrency, self._environ = kind, concurrency, environ
        self._closing = ExitStack()
        self._job: Place
        self._done_after: dict[int, set[int]] = {}
        """By launch: what was finished when it had been killed."""

    @property
    def is_complete(self) -> bool:
        return self._job.is_finished

    def close(self) -> None:
        self._closing.close()

    def begin(self, chance: random.Random) -> None:
        self.close()
        given = place(
            kind=self._kind,
            total=TOTALS[self._kind],
            concurrency=self._concurrency,
            # In a store that others share, each job has a name of its own.
            name=f"job-{chance.getrandbits(64):x}",
            environ=self._environ,
        )
        self._job = self._closing.enter_context(given)
        self._done_after = {}

    def start(self, chance: random.Random) -> Launched:
        return Started(self._job.start())

    def wait_for_a_moment(self, launched: Launched, chance: random.Random) -> None:
        """While it starts, some attempts on, or around the completion."""
        job, moment = self._job, chance.random()
        if moment < 0.25:
            time.sleep(chance.uniform(0, STARTUP_SECONDS))
        elif moment < 0.9:
            wanted = job.begun() + chance.randint(1, 25)
            launched.reaches(lambda: job.begun() >= wanted, "attempts")
            time.sleep(chance.uniform(0, 0.004))
        else:
            # The attempts that are left, at least, if nothing is in flight.
            wanted = job.begun() + job.total - len(job.done())
            launched.reaches(lambda: job.begun() >= wanted, "the last attempts")
            time.sleep(chance.uniform(0, 0.02))

    def check(self, ended: int) -> None:
        if ended < 0:
            self._done_after[self._job.launches] = self._job.done()
        self._check_calls()

    def check_complete(self) -> None:
        eventually(lambda: not self._job.survivors(), "nothing is left of the killed launches")
        self._job.check_results()
        self._check_calls()

    def _check_calls(self) -> None:
        finished: set[int] = set()
        for launch, begun in sorted(self._job.calls().items()):
            if len(begun) != len(set(begun)):
                raise Fault(f"launch {launch} ran an item twice: {begun}")
            if again := finished & set(begun):
                raise Fault(f"launch {launch} ran finished items again: {sorted(again)}")
            if launch in self._done_after:
                if lost := finished - self._done_after[launch]:
                    raise Fault(f"launch {launch} lost finished items: {sorted(lost)}")
                finished = self._done_after[launch]
                extra = set(begun) - finished
                if len(extra) > self._job.concurrency:
                    raise Fault(f"launch {launch} left {sorted(extra)} for another attempt")


def make(*, kind: str = "async", concurrency: int = 1, environ: dict[str, str] | None = None) -> Command:
    """`environ` is added to the environment of each launch: with AGENTRUN_STORE, the state is there."""
    return Command(kind, concurrency, environ or {})

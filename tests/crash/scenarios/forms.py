"""The second run of a job, some of whose items changed, are new or gone, dies at each call to the disk, completion
included: nothing that was kept or finished is run, in any form of results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from agentrun.agents.attempt import Attempt
from agentrun.system.disk import Disk
from crash.disks import CALLS
from crash.forms import KEPT, SECOND, Form, TwoRuns
from crash.harness import DyingScenario, Fault, Forked, Launched, Memory, freeze
from crash.model import Operation, Told
from crash.workload import scratch

KEYS = list(SECOND)
COMPLETED, RUN_AGAIN, FINISHED = 0, 1, 2
"""Places in the memory that outlives a launch; from the last on, one for each key."""


class Forms(DyingScenario):
    moments = tuple((call, after) for call in CALLS for after in (False, True))

    def __init__(self, form: Form) -> None:
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        self._runs = TwoRuns(self._base / "work", form)
        self._memory = Memory()

    def warm_up(self) -> None:
        self._runs.show(self._runs.start)
        assert self._launch(None) == 0
        self._runs.check_complete()
        freeze()

    @property
    def is_complete(self) -> bool:
        return bool(self._memory[COMPLETED])

    def starting_points(self) -> Iterator[str]:
        yield "after the first run"

    def go_to(self, point: str) -> None:
        self._runs.show(self._runs.start)
        self._memory.clear()

    def start_on(self, disk: Disk | None) -> Launched:
        return Forked(lambda: self._launch(disk), self._base / "complaints")

    def check(self, ended: int) -> None:
        self._runs.check()
        if again := self._memory[RUN_AGAIN]:
            raise Fault(f"{KEYS[again - 1]} was run although its result was kept or finished")

    def check_complete(self) -> None:
        self._runs.check_complete()

    def close(self) -> None:
        self._closing.close()

    def _launch(self, disk: Disk | None) -> int:
        memory = self._memory

        def tell(operation: Operation) -> None:
            if isinstance(operation, Told):
                for key in operation.keys:
                    memory[FINISHED + KEYS.index(key)] = 1

        def on_attempt(attempt: Attempt) -> None:
            number = KEYS.index(attempt.item.key)
            if attempt.item.key in KEPT or memory[FINISHED + number]:
                memory[RUN_AGAIN] = number + 1

        code = self._runs.launch(disk, tell, on_attempt).exit_code
        memory[COMPLETED] = code == 0
        return code


def make(*, form: Form) -> Forms:
    return Forms(form)

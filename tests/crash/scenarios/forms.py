"""The second run of a job with results as CSV or as a folder dies at each call to the disk, completion included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from agentrun.system.disk import Disk
from crash.disks import CALLS
from crash.forms import Form, TwoRuns
from crash.harness import DyingScenario, Forked, Launched, Memory, freeze
from crash.workload import scratch


class Forms(DyingScenario):
    moments = tuple((call, after) for call in CALLS for after in (False, True))

    def __init__(self, form: Form) -> None:
        self._closing = ExitStack()
        self._base = self._closing.enter_context(scratch())
        self._runs = TwoRuns(self._base / "work", form)
        self._completed = Memory()

    def warm_up(self) -> None:
        self._runs.show(self._runs.start)
        assert self._launch(None) == 0
        self._runs.check_complete()
        freeze()

    @property
    def is_complete(self) -> bool:
        return bool(self._completed[0])

    def starting_points(self) -> Iterator[str]:
        yield "after the first run"

    def go_to(self, point: str) -> None:
        self._runs.show(self._runs.start)
        self._completed.clear()

    def start_on(self, disk: Disk | None) -> Launched:
        return Forked(lambda: self._launch(disk), self._base / "complaints")

    def check(self, ended: int) -> None:
        self._runs.check()

    def check_complete(self) -> None:
        self._runs.check_complete()

    def close(self) -> None:
        self._closing.close()

    def _launch(self, disk: Disk | None) -> int:
        code = self._runs.launch(disk).exit_code
        self._completed[0] = code == 0
        return code


def make(*, form: Form) -> Forms:
    return Forms(form)

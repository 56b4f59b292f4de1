"""Runs recorded on a disk that writes down what reaches it, with what was promised when in the same log."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import orjson

from agentrun.agents.attempt import Attempt
from agentrun.events import Began
from agentrun.system.disk import Disk
from crash.blockdisk import Entry, Kind, block_disk, read_log
from crash.disks import folder_of
from crash.harness import Forked
from crash.inspection import look, recover_from_disk
from crash.model import Operation, Told
from crash.mounting import FileSystem, copy_sparsely, die_with_parent, make, mounted
from crash.workload import FakeAgent, Workload, key_of

ITEMS = 20
_EVERY_OTHER = [key_of(n) for n in range(0, ITEMS, 2)]
_KILL_AFTER_BYTES = 400_000
Without = Literal["", "folder", "file"]
"""Which fsyncs are left out, for a control."""


class MarkingDisk(Disk):
    """Marks each fsync when it has returned. For a control, those `without` which it does are not done at all."""

    def __init__(self, mark: Callable[[str, Any], None], without: Without) -> None:
        self._mark = mark
        self._without = without

    def fsync(self, fd: int) -> None:
        target = "file" if folder_of(fd) is None else "folder"
        if target != self._without:
            super().fsync(fd)
            self._mark("fsync", target)


@dataclass(frozen=True, slots=True)
class Start:
    """A disk on which a recording begins, and what was acknowledged before."""

    image: Path
    told: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Recording:
    start: Start
    log: list[Entry]

    def promised_before(self, position: int) -> tuple[frozenset[str], bool]:
        """The items that were acknowledged, and whether the run was."""
        told, completed = self.start.told, False
        for what, value in self.marks(position):
            if what == "told":
                told |= frozenset(value)
            completed |= what == "completed"
        return told, completed

    def check(self) -> None:
        """It shows what a cut needs to know, and no item was run again while it was recorded."""
        told, is_flushed = self.start.told, False
        for entry in self.log:
            is_flushed |= entry.kind is Kind.FLUSH
            if entry.kind is not Kind.MARK:
                continue
            what, value = orjson.loads(entry.data)
            if what == "found":
                assert told <= frozenset(value), f"lost: {sorted(told - frozenset(value))}"
            elif what == "run":
                assert value not in told, f"run again: {value}"
            elif what == "told" and value:
                assert is_flushed, "items were acknowledged, and no flush has reached the disk since the last ones"
                told, is_flushed = told | frozenset(value), False

    def count(self, kind: Kind) -> int:
        return sum(entry.kind is kind for entry in self.log)

    def marks(self, position: int | None = None) -> Iterator[tuple[str, Any]]:
        for entry in self.log[:position]:
            if entry.kind is Kind.MARK:
                what, value = orjson.loads(entry.data)
                yield what, value


class Bench:
    """Where runs are recorded and cuts are recovered from, on one file system."""

    def __init__(self, folder: Path, system: FileSystem, chance: random.Random) -> None:
        self._folder = folder
        self._system = system
        self._chance = chance
        self._served, self._mounted = folder / "served", folder / "mounted"
        self._served.mkdir()
        self._mounted.mkdir()
        self._complaints = folder / "complaints"
        self._empty = folder / "empty"
        self._workload = Workload(self._mounted / "work", ITEMS)
        make(system, self._empty)
        with self._on(self._empty):
            self._workload.lay_out()

    def _on(self, image: Path) -> AbstractContextManager[Path]:
        return mounted(image, self._mounted, self._system, self._chance.choice(self._system.options))

    def record(self, cut: Start | None, without: Without) -> Recording:
        """A run to its end, from a disk that a cut left or from the beginning, in some launches that are killed."""
        start = cut or Start(self._empty)
        image, log = self._folder / "disk", self._folder / "log"
        log.unlink(missing_ok=True)
        copy_sparsely(start.image, image)
        workload = Workload(self._workload.base, ITEMS, concurrency=self._chance.choice([1, 1, 4]))
        # In two launches of a run: an item that has failed in three is left alone.
        failing = 0 if cut else self._chance.choice([0, 1, 2])
        with block_disk(image, log, self._served) as disk, self._on(disk.disk):
            for number in count():
                fails = _EVERY_OTHER if number < failing else []
                launched = Forked(_launch(workload, disk.marks, fails, without), self._complaints)
                if self._chance.random() < 0.6:
                    self._kill(launched, log)
                code = launched.wait()
                if code == 0:
                    break
                assert code in (-signal.SIGKILL, 1 if fails else 0), f"a launch exited with {code}"
        recording = Recording(start, read_log(log))
        recording.check()
        return recording

    def _kill(self, launched: Forked, log: Path) -> None:
        """When it has written something, unless it ends before."""
        enough = log.stat().st_size + self._chance.randrange(_KILL_AFTER_BYTES)
        if launched.reaches(lambda: log.stat().st_size > enough, "the log grows"):
            launched.kill()

    def recover(self, image: Path, told: frozenset[str], completed: bool) -> None:
        """Mount what a cut has left, and complete the run there. Raises a Fault."""
        parent, workload = os.getpid(), self._workload

        def recover() -> int:
            die_with_parent(parent)
            recover_from_disk(workload, told=told, completed=completed)
            return 0

        with self._on(image):
            Forked(recover, self._complaints).wait()


def _launch(workload: Workload, marks: Path, fails: list[str], without: Without) -> Callable[[], int]:
    parent = os.getpid()

    def launch() -> int:
        die_with_parent(parent)
        fd = os.open(marks, os.O_WRONLY)

        def mark(what: str, value: Any) -> None:
            os.pwrite(fd, orjson.dumps([what, value]), 0)

        def tell(operation: Operation) -> None:
            if isinstance(operation, Told):
                mark("told", sorted(operation.keys))

        def watch(event: object) -> None:
            # After the launch's first commit, what it found is promised too, though a kill may have come before.
            if isinstance(event, Began):
                mark("told", sorted(found.done))

        def attempt(one: Attempt) -> None:
            mark("run", one.item.key)

        found = look(workload)
        if found.is_finished and not (workload.folder / "state.json").exists():
            # Killed before it could say so.
            mark("completed", True)
            return 0
        if found.is_unfinished:
            mark("found", sorted(found.done))
        agent = FakeAgent(fails=fails, on_attempt=attempt)
        summary = workload.launch(agent, disk=MarkingDisk(mark, without), tell=tell, watcher=watch)
        if summary.exit_code == 0:
            mark("completed", True)
        return summary.exit_code

    return launch

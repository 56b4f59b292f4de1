"""A second crash: while a launch recovers from the first, before and after its first commit, or while it completes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agentrun.errors import PlanError
from crash.disks import RecordingDisk
from crash.inspection import (
    BEFORE,
    Stage,
    check_promised,
    distinct_states,
    look,
    moments,
    recover,
    summary_of,
)
from crash.model import Completed, Model, Operation, State, Told, Write, fingerprint
from crash.workload import FakeAgent, Workload

_VOLATILE = re.compile(r"\.[0-9a-f]{12}\.tmp|\d{8}T\d{6}-[0-9a-f]+|journal-\d+|, inode=\d+")


@dataclass(slots=True)
class Crashes:
    """Goes from crash to crash and counts. Each state that is left is read and checked; of those that differ in
    nothing but times and random names, one is recovered to the end."""

    workload: Workload
    launches: int = 0
    states: int = 0
    recovered: int = 0
    _seen: dict[int, int] = field(default_factory=dict)
    _classes: set[object] = field(default_factory=set)
    _starts: set[object] = field(default_factory=set)
    _stage: Stage = field(init=False)

    def __post_init__(self) -> None:
        self._stage = Stage(self.workload)

    def kills(self, history: list[Operation], start: Model | None = None, *, by_name: bool = False) -> Iterator[Model]:
        """What a launch may find after a kill at any moment of `history`: everything, certain or not.

        Starts with the same files and the same doubts about them are one; `by_name`, also where the files' contents
        differ."""
        for model in moments(history, start):
            names = {inode: _VOLATILE.sub("", path) for path, inode in model.visible.items() if inode is not None}
            doubts = (
                tuple(sorted(names.values())) if by_name else fingerprint(model.after_kill()),
                tuple(_VOLATILE.sub("", str(pending.operation)) for pending in model.pending),
                tuple(names.get(inode) for inode, file in model.files.items() if file.since),
            )
            if doubts not in self._starts:
                self._starts.add(doubts)
                yield model.copy()

    def cuts(self, history: list[Operation], start: Model | None = None) -> Iterator[Model]:
        """What a launch may find after a power cut at any moment of `history`: one of the possible states."""
        for key, (state, told, completed) in distinct_states(history, start, brief=True).items():
            if key not in self._starts:
                self._starts.add(key)
                yield Model.of(state, told=told, completed=completed)

    def launch(self, found: Model) -> list[Operation]:
        """The operations of a launch that finds this: it goes on with one item, and completes the run if it can."""
        self.launches += 1
        self._stage.show(found.after_kill())
        self._stage.disturbed()
        disk = RecordingDisk(self.workload.base, found.copy())
        options: dict[str, Any] = {"disk": disk, "tell": disk.add, "limit": 1}
        try:
            summary = self.workload.launch(FakeAgent(), resume=True, **options)
        except PlanError:
            assert not found.told, "a run that was begun is not known any more"
            summary = self.workload.launch(FakeAgent(), **options)
        if summary.exit_code == 0:
            disk.add(Completed())
        return disk.log

    def check(self, history: list[Operation], start: Model) -> None:
        """Every state that a crash may leave at any moment of `history` keeps the promises."""
        for model in moments(history, start):
            for state in model.after_power_cut(brief=True):
                self._check(state, model)

    def _check(self, state: State, model: Model) -> None:
        key = fingerprint(state)
        promised = len(model.told) + model.completed
        if self._seen.get(key, -1) >= promised:
            return
        self.states += key not in self._seen
        self._seen[key] = promised
        try:
            self._stage.show(state)
            found = look(self.workload)
            check_promised(self.workload, found, told=model.told, completed=model.completed)
            names = frozenset(_VOLATILE.sub("", path) for path in state)
            results = state.get("out/results.jsonl")
            kind = (names, found.is_unfinished, found.done, results is None, results == self.workload.results)
            if kind not in self._classes:
                self._classes.add(kind)
                self.recovered += 1
                recover(self._stage, state, told=model.told, completed=model.completed)
        except Exception as error:
            raise AssertionError(f"{summary_of(state)}: {type(error).__name__}: {error}") from error


def completion_of(history: list[Operation]) -> tuple[Model, list[Operation]]:
    """The disk before a clean completion began, and the completion's operations."""
    model = Model.of(BEFORE)
    noted = [n for n, one in enumerate(history) if isinstance(one, Write) and b'"completing"' in one.data[:4096]]
    # The commit that notes `completing` begins with what it moves to the journal, behind the last promise.
    first = max(n for n, one in enumerate(history[: noted[0]]) if isinstance(one, Told))
    for operation in history[:first]:
        model.apply(operation)
    return model, history[first:]

"""Puts a state of the disk in place, recovers from it, and holds the outcome against the promises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from agentrun.checkpoint.ledger import STATE_NAMES
from agentrun.checkpoint.summary import Summary
from agentrun.errors import PlanError
from agentrun.system.disk import Disk
from crash.disks import RecordingDisk
from crash.model import Completed, Model, Operation, State, fingerprint
from crash.workload import FakeAgent, Teller, Workload, key_of, nobody, output_of

BEFORE: State = {"out": None}
"""What is there before the first launch, beside the items."""


class Stage:
    """A workload's folder, in which states are put in place."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._there: State | None = None

    def show(self, state: State) -> None:
        """Make the folder hold `state` and nothing else. Only what differs from the last one is written, so say
        `disturbed` when anybody else has written there."""
        base = str(self.workload.base)
        if self._there is None:
            for name in ("state", "out"):
                _empty(os.path.join(base, name))
            self._there = dict(BEFORE)
        there = self._there
        for path in sorted(there.keys() - state.keys(), reverse=True):
            full = os.path.join(base, path)
            if there[path] is not None:
                os.unlink(full)
            elif path != "out":
                os.rmdir(full)
        for path, content in state.items():
            full = os.path.join(base, path)
            if content is None:
                if path not in there:
                    os.mkdir(full, 0o700)
            elif path not in there or there[path] != content:
                fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.write(fd, content)
                os.close(fd)
        self._there = {**BEFORE, **state}

    def disturbed(self) -> None:
        self._there = None


def _empty(folder: str) -> None:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            _empty(entry.path)
        else:
            os.unlink(entry.path)
    if os.path.basename(folder) != "out":
        os.rmdir(folder)


@dataclass(frozen=True, slots=True)
class Found:
    """What is on record in a folder, read as a launch does."""

    is_unfinished: bool
    is_finished: bool
    seq: int
    done: frozenset[str]


def look(workload: Workload) -> Found:
    """Read and check what is there. A state that a crash left is never an error."""
    store = workload.store()
    loaded = store.load()
    if loaded.finished is not None or (loaded.checkpoint is None and store.summaries()):
        return Found(False, True, 0, frozenset())
    if loaded.checkpoint is None:
        return Found(False, False, 0, frozenset())
    newest = {record.key: record.kind for _, record in store.scan()}
    assert set(newest.values()) <= set(STATE_NAMES)
    done = frozenset(key for key, kind in newest.items() if kind == "done")
    return Found(True, False, loaded.checkpoint.seq, done)


def check_promised(workload: Workload, found: Found, *, told: frozenset[str], completed: bool) -> None:
    """Nothing that was told is lost; a run that is complete has its results; there are never half of them."""
    if completed:
        assert found.is_finished, "a run that was told to be complete is not"
    if found.is_finished:
        assert workload.output.read_bytes() == workload.results, "a finished run without its results"
    else:
        assert told <= found.done, f"lost: {sorted(told - found.done)}"
        assert not workload.output.exists() or workload.output.read_bytes() == workload.results, "half of the results"


def check_filed(workload: Workload) -> None:
    """Every run that ended is filed with all its records: `redo` begins with them, and nothing is paid for again."""
    runs = workload.folder / "runs"
    for path in runs.glob("*.json"):
        length = orjson.loads(path.read_bytes())["journal_length"]
        text = path.with_suffix(".jsonl").read_bytes()[:length]
        newest = {record["key"]: record for record in map(orjson.loads, text.splitlines())}
        outputs = {key: record["output"] for key, record in newest.items() if record["kind"] == "done"}
        assert outputs == {key: output_of(key) for key in map(key_of, range(workload.total))}, "filed without records"


def go_on(workload: Workload, agent: FakeAgent, *, disk: Disk | None = None, tell: Teller = nobody) -> Summary:
    """Resume; and where there is nothing to resume, start."""
    try:
        return workload.launch(agent, disk=disk, tell=tell, resume=True)
    except PlanError:
        return workload.launch(agent, disk=disk, tell=tell)


def recover(stage: Stage, state: State, *, told: frozenset[str], completed: bool = False) -> None:
    """From `state` a launch ends with the results of an undisturbed run, and does again nothing that was done."""
    stage.show(state)
    stage.disturbed()
    recover_from_disk(stage.workload, told=told, completed=completed)


def recover_from_disk(workload: Workload, *, told: frozenset[str], completed: bool) -> None:
    """The same of the state that is there."""
    found = look(workload)
    check_promised(workload, found, told=told, completed=completed)
    agent = FakeAgent()
    summary = go_on(workload, agent)
    assert summary.exit_code == 0
    assert workload.output.read_bytes() == workload.results
    again = found.done.intersection(agent.attempted)
    assert not again, f"run again: {sorted(again)}"
    assert len(agent.attempted) == len(set(agent.attempted))
    wanted = 0 if found.is_finished else workload.total - len(found.done)
    assert len(agent.attempted) == wanted, f"{len(agent.attempted)} items were run instead of {wanted}"
    check_filed(workload)
    left = {name for name in os.listdir(workload.folder) if name not in ("lock", "log.jsonl", "logs", "runs")}
    assert left <= {"job.json"}, f"left behind: {sorted(left)}"


def record_history(workload: Workload) -> list[Operation]:
    """A run in three launches: the first fails every other item, the second mends all of those but one, and the third
    finds a journal that is mostly garbage, compacts it and completes the run."""
    workload.lay_out()
    disk = RecordingDisk(workload.base, Model.of(BEFORE))
    odd = [key_of(n) for n in range(0, workload.total, 2)]
    first = workload.launch(FakeAgent(fails=odd), disk=disk, tell=disk.add)
    second = workload.launch(FakeAgent(), disk=disk, tell=disk.add, limit=len(odd) - 1)
    third = workload.launch(FakeAgent(), disk=disk, tell=disk.add)
    disk.add(Completed())
    assert [first.exit_code, second.exit_code, third.exit_code] == [1, 4, 0]
    assert (workload.folder / "runs" / f"{third.run_id}.jsonl").exists()
    return disk.log


def moments(history: list[Operation], start: Model | None = None, *, only_new: bool = True) -> Iterator[Model]:
    """The disk before, and after each operation; `only_new`, after those that a crash could show. The model is the
    same object each time: copy it to keep it."""
    model = start.copy() if start is not None else Model.of(BEFORE)
    yield model
    for operation in history:
        model.apply(operation)
        if not only_new or model.may_leave_more(operation):
            yield model


def distinct_states(
    history: list[Operation], start: Model | None = None, *, brief: bool = False
) -> dict[int, tuple[State, frozenset[str], bool]]:
    """Every state that a power cut at any moment may leave, each with the most that was promised before it."""
    found: dict[int, tuple[State, frozenset[str], bool]] = {}
    for model in moments(history, start):
        for state in model.after_power_cut(brief=brief):
            # Later moments promise more, so the last one counts.
            found[fingerprint(state)] = (state, model.told, model.completed)
    return found


def summary_of(state: State) -> str:
    """For messages: the names, and the checkpoint's seq."""
    text = state.get("state/job/state.json")
    try:
        seq = orjson.loads(text or b"")["seq"]
    except (orjson.JSONDecodeError, KeyError):
        seq = "?"
    return f"seq {seq}: {', '.join(path for path, content in state.items() if content is not None)}"

"""Hard-linked backups, made while a launch is at work: no crash changes them, and each can be restored."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agentrun.agents.attempt import Attempt
from crash.disks import RecordingDisk
from crash.inspection import BEFORE, Stage, distinct_states, recover, summary_of
from crash.model import Link, Model, Rename
from crash.workload import REDO_LIMIT_BYTES, FakeAgent, TellingStore, Workload, key_of, scratch

ITEMS = 13
BACKED_UP_AT = (5, 8)
"""The items during which a backup is made: the journal is open by then."""


@pytest.fixture
def workload() -> Iterator[Workload]:
    with scratch() as path:
        yield Workload(path / "work", ITEMS, compact_over_bytes=1 << 30)


class Backups:
    """`cp -al` of the state and its journal, beside the results."""

    def __init__(self, workload: Workload, disk: RecordingDisk) -> None:
        self._workload = workload
        self._disk = disk
        self.made: dict[str, bytes] = {}
        """By path: what was there when it was made."""

    def on_attempt(self, attempt: Attempt) -> None:
        if attempt.item.index not in BACKED_UP_AT:
            return
        for name in ("journal-1.jsonl", "state.json"):
            target = self._workload.base / "out" / f"backup-{attempt.item.index}-{name}"
            self._disk.link(str(self._workload.folder / name), str(target))
            self.made[f"out/{target.name}"] = target.read_bytes()


def test_a_power_cut_while_a_journal_with_a_second_name_is_copied_loses_nothing(workload: Workload) -> None:
    workload.lay_out()
    disk = RecordingDisk(workload.base, Model.of(BEFORE))
    backups = Backups(workload, disk)
    summary = workload.launch(FakeAgent(on_attempt=backups.on_attempt), disk=disk, tell=disk.add, limit=8)
    assert summary.exit_code == 4
    copied = [one for one in disk.log if isinstance(one, Rename) and one.target.endswith("journal-1.jsonl")]
    linked = [one for one in disk.log if isinstance(one, Link)]
    assert len(copied) == 1 and len(linked) == 2

    # From the first backup on: what came before it is the matter of test_states.py.
    at, model = disk.log.index(linked[0]), Model.of(BEFORE)
    for operation in disk.log[:at]:
        model.apply(operation)
    states = distinct_states(disk.log[at:], model, brief=True)
    print(len(states), "states")
    assert len(states) > 100
    stage = Stage(workload)
    for state, told, completed in states.values():
        for path, content in backups.made.items():
            # Nobody synced the folder of the backups, so one may be missing; but it is never another.
            assert state.get(path, content) == content, f"{path} has changed"
        # Only the run itself is put in place: a stage has no second names.
        run = {path: content for path, content in state.items() if "backup-" not in path}
        try:
            recover(stage, run, told=told, completed=completed)
        except Exception as error:
            raise AssertionError(f"{summary_of(state)}: {type(error).__name__}: {error}") from error


def test_each_backup_restored_continues_from_where_it_was_made(workload: Workload) -> None:
    workload.lay_out()
    disk = RecordingDisk(workload.base, Model.of(BEFORE))
    backups = Backups(workload, disk)
    workload.launch(FakeAgent(on_attempt=backups.on_attempt), disk=disk, limit=ITEMS - 1)
    for index in BACKED_UP_AT:
        for name in ("state.json", "journal-1.jsonl"):
            path = f"out/backup-{index}-{name}"
            assert (workload.base / path).read_bytes() == backups.made[path], f"{path} has changed"
            (workload.folder / name).unlink(missing_ok=True)
            os.link(workload.base / path, workload.folder / name)
        store = TellingStore(workload.folder, redo_limit_bytes=REDO_LIMIT_BYTES)
        store.load()
        assert {record.key for _, record in store.scan()} == {key_of(n) for n in range(index)}
        agent = FakeAgent()
        workload.launch(agent, limit=2)
        assert agent.attempted == [key_of(index), key_of(index + 1)]
        for path, content in backups.made.items():
            assert (workload.base / path).read_bytes() == content, f"{path} has changed"

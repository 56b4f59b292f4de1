"""A job comes into a folder: every state of the disk that a power cut may leave is the job before, or the whole new
one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Contents
from agentrun.system.disk import Disk
from agentrun.testing.examples import LATER_RUN, RUN, answer, checkpoint, end_run, keys, record
from crash.disks import RecordingDisk
from crash.inspection import distinct_states
from crash.model import Completed, Model, Operation, State
from crash.workload import scratch

OLD_RUN = "20260401T220311-0a2f19f3a1c"


def small_job() -> Contents:
    store = MemoryStore()
    end_run(store, names="a")
    store.commit(checkpoint(1, run_id=LATER_RUN), [record("b"), record("c")])
    store.keep("job.json", [b"{}"])
    store.post([answer("b")])
    return store.contents()


def state_of(base: Path) -> State:
    found: State = {}
    for folder, _, files in os.walk(base):
        inside = os.path.relpath(folder, base)
        if inside != ".":
            found[inside] = None
        found |= {os.path.normpath(f"{inside}/{name}"): Path(folder, name).read_bytes() for name in files}
    return dict(sorted(found.items()))


def show(base: Path, state: State) -> None:
    shutil.rmtree(base)
    base.mkdir(mode=0o700)
    for path, content in state.items():
        if content is None:
            (base / path).mkdir(mode=0o700)
        else:
            (base / path).write_bytes(content)


def record_adoption(base: Path, contents: Contents, disk: Disk, *, replace: bool) -> None:
    store = FolderStore(base / "state" / "job", disk=disk, redo_limit_bytes=0)
    lease = store.lock(wait_seconds=0)
    store.load()
    store.adopt(contents, replace=replace)
    lease.release()


def check(base: Path, *, before: str, is_promised: bool) -> str:
    """What the next launch finds: the run `before`, or the new one."""
    store = FolderStore(base / "state" / "job")
    lease = store.lock(wait_seconds=0)
    try:
        found = store.load().checkpoint
        run_id = found.run_id if found is not None else ""
        ended = {one.run_id for one in store.summaries()}
        if run_id == LATER_RUN:
            assert ended == {RUN} and keys(store) == ["b", "c"]
            with store.reader(run_id=RUN) as reader:
                assert [one.key for _, one in reader.records()] == ["a"]
            assert len(store.inbox()) == 1 and b"".join(store.fetch("job.json") or ()) == b"{}"
            store.commit(checkpoint(2, run_id=LATER_RUN), [record("new")])
        else:
            assert not is_promised, "an import that was complete is gone"
            assert run_id == before and ended == ({OLD_RUN} if before else set())
            assert keys(store) == (["old"] if before else [])
            store.commit(checkpoint(2 if before else 1), [record("new")])
        store.prune(keep=["items-1.spool"])
        assert keys(store)[-1] == "new"
        left = {name for name in os.listdir(store.folder) if name not in ("lock", "runs", "inbox", "job.json")}
        assert left <= {"state.json", *(name for name in left if name.startswith("journal-"))}, left
        return run_id
    finally:
        lease.release()


@pytest.mark.parametrize("replace", [False, True])
def test_a_power_cut_leaves_the_job_before_or_the_whole_new_one(replace: bool) -> None:
    with scratch() as path:
        base = path / "work"
        base.mkdir(mode=0o700)
        start: State = {}
        if replace:
            store = FolderStore(base / "state" / "job", redo_limit_bytes=0)
            (base / "state").mkdir(mode=0o700)
            lease = store.lock(wait_seconds=0)
            store.load()
            end_run(store, OLD_RUN, names="x")
            store.commit(checkpoint(1), [record("old")])
            lease.release()
            start = state_of(base)
        else:
            (base / "state").mkdir(mode=0o700)
            start = {"state": None}
        disk = RecordingDisk(base, Model.of(start))
        record_adoption(base, small_job(), disk, replace=replace)
        disk.add(Completed())
        history: list[Operation] = disk.log
        states = distinct_states(history, Model.of(start), brief=True)
        found = set()
        for state, _, completed in states.values():
            show(base, state)
            try:
                found.add(check(base, before=RUN if replace else "", is_promised=completed))
            except Exception as error:
                raise AssertionError(f"{sorted(state)}: {type(error).__name__}: {error}") from error
    print(len(states), "states")
    assert len(states) > 100 and found == {LATER_RUN, RUN if replace else ""}

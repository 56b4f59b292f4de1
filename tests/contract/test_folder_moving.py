"""A job comes into a folder: killed at each call to the disk, it is there whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from agentrun.store.folder.store import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Contents
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, end_run, keys, record
from agentrun.testing.moves import SIDES, Moved, fill
from contract.bench import Killed, MortalDisk, temporaries


def whole_job() -> Contents:
    store = MemoryStore()
    fill(store)
    return store.contents()


def adopt(folder: Path, contents: Contents, *, dies_at: int, replace: bool = False) -> bool:
    """Whether it came to its end before that call."""
    disk = MortalDisk()
    store = FolderStore(folder, disk=disk)
    lease = store.lock(wait_seconds=0)
    store.load()
    try:
        disk.left = dies_at
        store.adopt(contents, replace=replace)
        return True
    except Killed:
        return False
    finally:
        disk.left, disk.is_dead = -1, False
        lease.release()


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Callable[[Path], FolderStore]]:
    """The store as the next launch has it."""
    leases = []

    def open_store(folder: Path) -> FolderStore:
        store = FolderStore(folder)
        leases.append(store.lock(wait_seconds=0))
        store.load()
        return store

    yield open_store
    for lease in leases:
        lease.release()


def test_killed_anywhere_it_leaves_no_job_or_a_whole_one(tmp_path: Path, look: Callable[[Path], FolderStore]) -> None:
    contents = whole_job()
    there = MemoryStore()
    there.adopt(contents)
    outcomes = []
    for n in count(1):
        folder = tmp_path / f"{n}" / "triage"
        folder.parent.mkdir()
        is_over = adopt(folder, contents, dies_at=n)
        store = look(folder)
        is_there = store.load().checkpoint is not None
        outcomes.append(is_there)
        if is_there:
            assert Moved(store) == Moved(there), n
            store.commit(checkpoint(41, run_id=LATER_RUN), [record("new")])
        else:
            assert store.summaries() == [] and not (folder / "job.json").exists() and store.inbox() == [], n
            store.commit(checkpoint(1), [record("new")])
        assert not (folder / "adopted").exists()
        store.prune(keep=SIDES)
        assert temporaries(folder) == [] and keys(store)[-1] == "new"
        if is_over:
            break
    # First none, and from one call on all of it.
    assert outcomes == sorted(outcomes) and not outcomes[0] and outcomes[-1] and len(outcomes) > 30


def test_killed_anywhere_the_job_that_was_there_is_there_or_the_new_one(
    tmp_path: Path, look: Callable[[Path], FolderStore]
) -> None:
    contents = whole_job()
    outcomes = []
    for n in count(1):
        folder = tmp_path / f"{n}" / "triage"
        folder.parent.mkdir()
        store = FolderStore(folder, redo_limit_bytes=0)
        lease = store.lock(wait_seconds=0)
        store.load()
        end_run(store, "20260401T220311-0a2f19f3a1c")
        store.commit(checkpoint(1), [record("old")])
        lease.release()
        is_over = adopt(folder, contents, dies_at=n, replace=True)
        store = look(folder)
        found = store.load().checkpoint
        assert found is not None
        is_new = found.run_id == LATER_RUN
        outcomes.append(is_new)
        ended = [one.run_id for one in store.summaries()]
        if is_new:
            assert ended == [RUN] and list(store.contents().lines()) == list(contents.lines())
        else:
            assert ended == ["20260401T220311-0a2f19f3a1c"] and keys(store) == ["old"]
        assert sum(name.startswith("journal-") for name in os.listdir(folder)) == 1
        if is_over:
            break
    assert outcomes == sorted(outcomes) and not outcomes[0] and outcomes[-1]


def test_the_address_of_another_store_goes_when_the_job_comes_here(tmp_path: Path) -> None:
    folder = tmp_path / ".agentrun" / "triage"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder / "store.json").write_text('{"version":1,"store":"sqlite:///jobs.db"}')
    assert adopt(folder, whole_job(), dies_at=0)
    assert not (folder / "store.json").exists()

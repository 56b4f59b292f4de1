"""Messages and reopened runs: what a power cut at any moment leaves, and what the n-th call does that fails."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentrun.errors import DiskError
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import Lease
from agentrun.system.disk import Disk
from agentrun.testing.examples import RUN, checkpoint, keys, record, reopen, skip, summary
from crash.disks import CALLS, Call, FaultyDisk, RecordingDisk
from crash.inspection import moments
from crash.model import Model, Rename, State, SyncFolder, fingerprint
from crash.workload import scratch

NAMES = "abcd"


@pytest.fixture
def base() -> Iterator[Path]:
    with scratch() as path:
        yield path
        release()


_leases: list[Lease] = []


def open_store(base: Path, disk: Disk | None = None) -> FolderStore:
    store = FolderStore(base / "state" / "job", disk=disk, redo_limit_bytes=300)
    _leases.append(store.lock(wait_seconds=0))
    store.load()
    return store


def release() -> None:
    while _leases:
        _leases.pop().release()


def states_of(
    base: Path, before: Callable[[Path], None], act: Callable[[FolderStore], None]
) -> tuple[Model, list[State]]:
    """The certain state before `act`, and every state that a kill or a power cut in it may leave."""
    before(base)
    disk = RecordingDisk(base, Model.of(read_tree(base)))
    start = disk.model.copy()
    store = open_store(base, disk)
    act(store)
    release()
    found: dict[int, State] = {}
    for model in moments(disk.log, start, only_new=False):
        for state in [model.after_kill(), *model.after_power_cut(brief=True)]:
            found[fingerprint(state)] = state
    return disk.model, list(found.values())


def read_tree(base: Path) -> State:
    found: State = {}
    for path in sorted(base.rglob("*")):
        if path.name != "lock":
            found[str(path.relative_to(base))] = None if path.is_dir() else path.read_bytes()
    return found


def put_tree(base: Path, state: State) -> None:
    shutil.rmtree(base / "state", ignore_errors=True)
    for path, content in state.items():
        if content is None:
            (base / path).mkdir(mode=0o700)
        else:
            (base / path).write_bytes(content)


def begun(base: Path) -> None:
    store = open_store(base)
    store.commit(checkpoint(1), [record("a")])
    release()


def ended(base: Path) -> None:
    store = open_store(base)
    for seq, name in enumerate(NAMES, 1):
        store.commit(checkpoint(seq), [record(name)])
    store.finish(summary())
    store.prune()
    release()


def test_a_power_cut_leaves_whole_messages_and_none_once_they_are_posted_is_lost(base: Path) -> None:
    messages = [skip(key) for key in "xyz"]
    model, states = states_of(base, begun, lambda store: store.post(messages))
    counts = set()
    for state in states:
        put_tree(base, state)
        store = open_store(base)
        found = store.inbox()
        assert all(one.message in messages for one in found), [one.problem for one in found]
        assert keys(store) == ["a"]
        counts.add(len(found))
        release()
    assert counts == {0, 1, 2, 3} and len(states) > 10
    for state in model.after_power_cut():
        put_tree(base, state)
        assert [one.message for one in FolderStore(base / "state" / "job").inbox()] == messages


def test_a_message_gets_its_name_when_its_content_is_certain(base: Path) -> None:
    begun(base)
    disk = RecordingDisk(base, Model.of(read_tree(base)))
    model = disk.model.copy()
    FolderStore(base / "state" / "job", disk=disk).post([skip("x"), skip("y")])
    for operation in disk.log:
        if isinstance(operation, Rename):
            inode = model.visible[operation.source]
            assert inode is not None and not model.files[inode].since
        model.apply(operation)
    synced = [one.path for one in disk.log if isinstance(one, SyncFolder)]
    assert synced == ["state/job", "state/job/inbox"]


def reopen_and_begin(store: FolderStore) -> None:
    new = reopen(store)
    new.seq += 1
    store.commit(new, [record("a", "again", gen=1)])
    new.seq += 1
    store.commit(new, [record("b", "again", gen=1)])


def test_a_power_cut_while_a_run_is_reopened_leaves_the_old_one_or_the_new_one(base: Path) -> None:
    _, states = states_of(base, ended, reopen_and_begin)
    found = set()
    for state in states:
        put_tree(base, state)
        store = open_store(base)
        loaded = store.load().checkpoint
        if loaded is None:
            assert [one.run_id for one in store.summaries()] == [RUN]
            new = reopen(store)
            assert keys(store) == list(NAMES)
            new.seq += 1
            store.commit(new)
        else:
            assert loaded.context.from_run == RUN
            loaded.seq += 1
            store.commit(loaded)
        found.add("".join(keys(store)))
        store.prune()
        left = [name for name in os.listdir(store.folder) if name.startswith("journal-")]
        assert len(left) <= 1
        release()
    assert found == {"abcd", "abcda", "abcdab"} and len(states) > 10


@pytest.mark.parametrize("call", [call for call in CALLS if call not in ("truncate", "link", "unlink")])
def test_a_post_that_fails_breaks_nothing_and_leaves_whole_messages_only(base: Path, call: Call) -> None:
    begun(base)
    messages = [skip(key) for key in "xy"]

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    faults = 0
    for n in range(1, 50):
        put_tree(base, {path: text for path, text in read_tree(base).items() if "/inbox" not in path})
        runner = open_store(base)
        disk = FaultyDisk(call, n, fail)
        poster = FolderStore(base / "state" / "job", disk=disk)
        try:
            poster.post(messages)
        except DiskError as error:
            assert error.exit_code == 74 and "inbox" in error.message
            faults += 1
        else:
            assert disk.failed_at is None
            release()
            break
        assert all(one.message in messages for one in runner.inbox())
        assert not list((base / "state" / "job").glob("inbox/.*.tmp"))
        poster.post(messages)
        loaded = runner.load().checkpoint
        assert loaded is not None
        loaded.seq += 1
        runner.commit(loaded)
        release()
    assert faults


def test_a_post_of_the_runner_itself_that_fails_does_not_stop_its_commits(base: Path) -> None:
    begun(base)
    armed: list[bool] = []

    def fail() -> None:
        if armed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class Full(Disk):
        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            fail()
            return super().write_some(fd, data, offset)

    store = open_store(base, Full())
    armed.append(True)
    with pytest.raises(DiskError, match="the disk is full"):
        store.post([skip("x")])
    armed.clear()
    store.commit(checkpoint(2), [record("b")])
    assert keys(store) == ["a", "b"] and store.inbox() == []
    release()

"""The file state.json: a new one at each commit, and no file that was once state.json is written to again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from agentrun.errors import CheckpointError, DiskError
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import FolderLease
from agentrun.system.disk import Disk
from agentrun.testing.examples import checkpoint, keys, record, reopen, summary
from contract.bench import FaultyDisk, temporaries

Open = Callable[..., FolderStore]


class Watching(Disk):
    """Which files were opened to be written, under which name and how."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        if flags & (os.O_WRONLY | os.O_RDWR):
            self.made.append((Path(path).name, flags))
        return fd


def commit(store: FolderStore, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        store.commit(checkpoint(seq), [record(f"{seq}")])


def seq_in(text: bytes) -> int:
    return int(orjson.loads(text)["seq"])


def test_each_commit_makes_a_new_file_with_a_name_that_nobody_can_foresee(folder: Path, open_folder: Open) -> None:
    disk = Watching()
    store = open_folder(disk=disk, redo_limit_bytes=2000)
    disk.made.clear()
    for seq in range(1, 41):
        commit(store, seq, seq)
        assert seq_in((folder / "state.json").read_bytes()) == seq
        assert not temporaries(folder)
    made = [(name, flags) for name, flags in disk.made if not name.startswith("journal-")]
    assert len({name for name, _ in made}) == len(made) == 40
    assert all(name.startswith(".state.json.") and flags & os.O_EXCL for name, flags in made)
    assert keys(store) == [str(seq) for seq in range(1, 41)] == keys(open_folder())


def test_who_has_an_old_one_open_keeps_reading_it_whole(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=1000)
    readers = {}
    texts = {}
    for seq in range(1, 12):
        commit(store, seq, seq)
        readers[seq] = os.open(folder / "state.json", os.O_RDONLY)
        texts[seq] = (folder / "state.json").read_bytes()
    commit(store, 12, 20)
    store.finish(summary())
    for seq, fd in readers.items():
        assert os.read(fd, 1 << 20) == texts[seq] and seq_in(texts[seq]) == seq
        os.close(fd)


def test_who_reads_it_again_and_again_sees_one_state_each_time(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=1000)
    commit(store, 1, 1)
    is_over = threading.Event()
    seen: list[int] = []
    faults: list[str] = []

    def read() -> None:
        while not is_over.is_set():
            try:
                seen.append(seq_in((folder / "state.json").read_bytes()))
            except (OSError, ValueError) as error:
                faults.append(repr(error))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        commit(store, 2, 100)
    finally:
        is_over.set()
        reader.join()
    assert not faults and seen == sorted(seen)


def test_a_hard_linked_backup_never_changes(folder: Path, tmp_path: Path, open_folder: Open) -> None:
    """`cp -al` of the folder, between two launches and while one is at work; then resumed, compacted and finished."""
    store = open_folder(redo_limit_bytes=1000)
    commit(store, 1, 9)

    def back_up(name: str) -> dict[Path, bytes]:
        (tmp_path / name).mkdir()
        for path in folder.iterdir():
            if path.is_file() and path.name != "lock":
                os.link(path, tmp_path / name / path.name)
        return {path: path.read_bytes() for path in (tmp_path / name).iterdir()}

    kept = back_up("first")
    assert {path.name for path in kept} == {"state.json", "journal-1.jsonl"}
    store = open_folder(redo_limit_bytes=1000)
    commit(store, 10, 30)
    kept |= back_up("second")
    store = open_folder(redo_limit_bytes=1000)
    assert keys(store) == [str(seq) for seq in range(1, 31)]
    commit(store, 31, 33)
    refs = [ref for ref, _ in store.scan()]
    # A stray of a launch that died in compaction, and part of a backup.
    (folder / "journal-2.jsonl").write_bytes(b"stray")
    os.link(folder / "journal-2.jsonl", tmp_path / "stray")
    store.compact(checkpoint(34), refs[::2])
    kept |= back_up("third")
    store = open_folder(redo_limit_bytes=1000)
    commit(store, 35, 36)
    store.finish(summary())
    assert {path: path.read_bytes() for path in kept} == kept
    assert (tmp_path / "stray").read_bytes() == b"stray"
    reopen(store)
    assert keys(store) == [*(str(seq) for seq in range(1, 34, 2)), "35", "36"]


def test_each_new_one_is_for_the_owner_alone(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    before = os.umask(0)
    try:
        for seq in range(1, 4):
            commit(store, seq, seq)
            assert (folder / "state.json").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def replace_by_rename(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def rewrite_in_place(path: Path) -> None:
    stat, text = path.stat(), path.read_bytes()
    path.write_bytes(text + b" ")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def touch(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def use_its_inode_again(path: Path) -> None:
    """Some file systems give a new file the number of the one just unlinked."""
    text = path.read_bytes()
    path.unlink()
    path.write_bytes(text)


@pytest.mark.parametrize("other", [replace_by_rename, rewrite_in_place, touch, use_its_inode_again, Path.unlink])
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_one_that_another_program_touched_is_neither_replaced_nor_unlinked(
    folder: Path, open_folder: Open, other: Callable[[Path], None], commits: int
) -> None:
    store = open_folder()
    commit(store, 1, commits)
    path = folder / "state.json"
    other(path)
    theirs = path.read_bytes() if path.exists() else None
    for act in (
        lambda: store.commit(checkpoint(commits + 1), [record("x")]),
        lambda: store.compact(checkpoint(commits + 1), []),
        lambda: store.finish(summary()),
    ):
        with pytest.raises(CheckpointError, match="replaced by another program"):
            act()
    assert (path.read_bytes() if path.exists() else None) == theirs
    assert not temporaries(folder) and not (folder / "runs").exists()


def test_one_that_appeared_where_there_was_none_is_not_replaced(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    (folder / "state.json").write_bytes(b"theirs")
    with pytest.raises(CheckpointError, match="replaced by another program"):
        store.commit(checkpoint(1))
    assert (folder / "state.json").read_bytes() == b"theirs"


@pytest.mark.parametrize("target", ["whole", "missing"])
def test_a_link_in_its_place_is_never_followed(folder: Path, tmp_path: Path, open_folder: Open, target: str) -> None:
    store = open_folder()
    commit(store, 1, 1)
    path, elsewhere = folder / "state.json", tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    text = elsewhere.read_bytes()
    if target == "missing":
        elsewhere.unlink()
    for read in (FolderStore(folder).load, FolderStore(folder).reader):
        with pytest.raises((CheckpointError, DiskError), match="link"):
            read()
    with pytest.raises(CheckpointError):
        store.commit(checkpoint(2), [record("b")])
    store = open_folder(load=False)
    store.set_aside()
    assert not os.path.lexists(path)
    assert (elsewhere.read_bytes() if elsewhere.exists() else text) == text


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc to count descriptors")
@pytest.mark.parametrize("redo_limit_bytes", [0, 16 * 1024])
@pytest.mark.parametrize("operation", ["open", "write", "fsync", "replace", "unlink"])
def test_a_failure_leaves_a_whole_state_no_temporary_and_no_descriptor(
    folder: Path, open_folder: Open, leases: list[FolderLease], operation: str, redo_limit_bytes: int
) -> None:
    seq = 0
    for after in range(4):
        disk = FaultyDisk(operation)
        descriptors = len(os.listdir("/proc/self/fd"))
        store = open_folder(disk=disk, redo_limit_bytes=redo_limit_bytes)
        for _ in range(4):
            seq += 1
            store.commit(checkpoint(seq), [record(f"{seq}")])
        before = keys(store)
        disk.arm(after)
        try:
            store.commit(checkpoint(seq + 1), [record(f"{seq + 1}")])
        except DiskError:
            assert operation != "unlink"
        disk.operation = ""
        leases[-1].release()
        assert not temporaries(folder)
        assert len(os.listdir("/proc/self/fd")) == descriptors
        store = open_folder()
        found = keys(store)
        leases[-1].release()
        assert found in (before, [*before, f"{seq + 1}"])
        seq = len(found)


@pytest.mark.parametrize("operation", ["write", "fsync", "replace"])
def test_after_a_commit_that_failed_the_run_is_not_finished_either(
    folder: Path, open_folder: Open, operation: str
) -> None:
    """The fsync of the journal that finish needs could report success for pages that the kernel has dropped."""
    disk = FaultyDisk(operation)
    store = open_folder(disk=disk, redo_limit_bytes=0)
    commit(store, 1, 2)
    disk.arm(0)
    with pytest.raises(DiskError):
        commit(store, 3, 3)
    disk.operation = ""
    for act in (
        lambda: store.finish(summary()),
        lambda: store.keep("job.json", [b"{}"]),
        lambda: store.set_aside(),
        lambda: store.compact(checkpoint(3), []),
    ):
        with pytest.raises(DiskError, match="an earlier write failed"):
            act()
    assert disk.fsyncs_after == 0 and not (folder / "runs").exists() and not (folder / "job.json").exists()
    assert keys(open_folder())[:2] == ["1", "2"]

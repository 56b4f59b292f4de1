"""The file state.json: the one before is written over, and nobody who has it sees that."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from agentrun.errors import DiskError
from agentrun.store.folder.store import FolderStore
from agentrun.system.disk import Disk, is_local
from contract.bench import FaultyDisk, checkpoint, entry, keys
from needs import require
from waiting import eventually


def has_leases() -> bool:
    """Here, that is where temporary files are."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            Disk().lease(file.fileno())
        except OSError:
            return False
    return is_local(tempfile.gettempdir())


needs_leases = pytest.mark.usefixtures("leases")


@pytest.fixture
def leases() -> None:
    require(
        has_leases(), "this file system has no leases", remedy="set TMPDIR to a folder on a local Linux file system"
    )


class Counting(Disk):
    """How many files are made, and cut."""

    def __init__(self) -> None:
        self.made = self.cut = 0

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self.made += path.endswith(".tmp") and bool(flags & os.O_CREAT)
        return super().open(path, flags, mode)

    def truncate(self, fd: int, length: int) -> None:
        self.cut += 1
        super().truncate(fd, length)


def temporaries(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def commit(store: FolderStore, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        store.commit(checkpoint(seq), [entry(f"{seq}")])


def seq_in(text: bytes) -> int:
    return int(orjson.loads(text)["seq"])


@needs_leases
def test_two_files_take_turns_and_no_third_is_made(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    disk = Counting()
    store = open_folder(disk=disk, redo_limit_bytes=2000)
    inodes = set()
    made_before = disk.made
    for seq in range(1, 41):
        commit(store, seq, seq)
        inodes.add((folder / "state.json").stat().st_ino)
        assert seq_in((folder / "state.json").read_bytes()) == seq
        assert len(temporaries(folder)) == (seq > 1)
    assert len(inodes) == 2 and disk.made - made_before == 2
    # It grows and shrinks with the redo part.
    assert disk.cut > 2
    assert keys(store) == [str(seq) for seq in range(1, 41)]
    store.release()
    assert not temporaries(folder)
    assert keys(open_folder()) == [str(seq) for seq in range(1, 41)]


def test_who_has_the_old_one_open_keeps_reading_it(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    commit(store, 1, 3)
    readers = {}
    for seq in range(4, 12):
        commit(store, seq, seq)
        if seq % 3:
            readers[seq] = os.open(folder / "state.json", os.O_RDONLY)
    for seq, fd in readers.items():
        assert seq_in(os.read(fd, 1 << 20)) == seq
        os.close(fd)
    commit(store, 12, 20)
    assert seq_in((folder / "state.json").read_bytes()) == 20
    assert len(temporaries(folder)) <= 1


def test_a_hard_link_to_it_stays_as_it_was(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    commit(store, 1, 4)
    os.link(folder / "state.json", folder.parent / "backup.json")
    commit(store, 5, 9)
    assert seq_in((folder.parent / "backup.json").read_bytes()) == 4
    assert seq_in((folder / "state.json").read_bytes()) == 9


def test_one_that_others_may_read_is_not_used_again(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    commit(store, 1, 4)
    os.chmod(folder / "state.json", 0o644)
    for seq in range(5, 10):
        commit(store, seq, seq)
        assert (folder / "state.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("by", ["unlinking it", "putting another file there"])
def test_one_that_somebody_took_away_is_missed_by_nobody(
    folder: Path, open_folder: Callable[..., FolderStore], by: str
) -> None:
    store = open_folder()
    commit(store, 1, 4)
    for name in temporaries(folder):
        if by == "unlinking it":
            (folder / name).unlink()
        else:
            # First made, and then put there: or it would be given the same inode.
            (folder / "other").write_bytes(b"not a state")
            (folder / "other").chmod(0o600)
            (folder / "other").replace(folder / name)
    commit(store, 5, 9)
    assert seq_in((folder / "state.json").read_bytes()) == 9
    assert len(temporaries(folder)) <= 1


@needs_leases
def test_who_opens_it_while_it_is_written_over_waits_and_reads_it_whole(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    """Somebody who looked state.json up when that was still its name, and opens it only now."""
    told: list[int] = []
    readers: list[subprocess.Popen[bytes]] = []

    class Watched(Disk):
        def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
            if not folder_has_spare or readers:
                return super().write_some(fd, data, offset)
            written = super().write_some(fd, data[: len(data) // 2], offset)
            readers.append(subprocess.Popen(["cat", *temporaries(folder)], cwd=folder, stdout=subprocess.PIPE))
            eventually(lambda: told, "the reader waits", alive=readers[0])
            return written

    folder_has_spare = False
    store = open_folder(disk=Watched())
    commit(store, 1, 4)
    folder_has_spare = True
    # Who waits is announced by this signal, which is ignored by those who do not expect it.
    before = signal.signal(signal.SIGURG, lambda number, frame: told.append(number))
    try:
        commit(store, 5, 5)
    finally:
        signal.signal(signal.SIGURG, before)
    assert before == signal.SIG_DFL
    assert seq_in(readers[0].communicate()[0]) == 5
    commit(store, 6, 9)
    assert seq_in((folder / "state.json").read_bytes()) == 9


class Without(Disk):
    """A system that does not know one of the calls."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.tried = 0

    def _refuse(self, call: str) -> None:
        if call == self.call:
            self.tried += 1
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def link(self, source: str, target: str) -> None:
        self._refuse("link")
        super().link(source, target)

    def lease(self, fd: int) -> None:
        self._refuse("lease")
        super().lease(fd)


@needs_leases
@pytest.mark.parametrize(("call", "times"), [("link", 1), ("lease", 3)])
def test_where_there_is_no_such_call_each_is_a_new_file(
    folder: Path, open_folder: Callable[..., FolderStore], call: str, times: int
) -> None:
    disk = Without(call)
    store = open_folder(disk=disk)
    commit(store, 1, 20)
    assert disk.tried == times
    assert seq_in((folder / "state.json").read_bytes()) == 20
    assert not temporaries(folder)


@needs_leases
def test_one_that_the_system_took_back_meanwhile_is_not_put_in_its_place(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    """After some time it lets those in who wait, though the text is not whole."""

    class Taken(Counting):
        def unlease(self, fd: int) -> bool:
            return super().unlease(fd) and super().unlease(fd)

    disk = Taken()
    store = open_folder(disk=disk)
    made = disk.made
    commit(store, 1, 12)
    assert disk.made - made == 12
    assert seq_in((folder / "state.json").read_bytes()) == 12


@needs_leases
def test_a_lease_does_not_outlive_the_commit_though_a_child_has_the_descriptor(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    children: list[int] = []

    class Forking(Disk):
        def lease(self, fd: int) -> None:
            if not children:
                children.append(os.fork())
                if not children[0]:
                    signal.pause()
            super().lease(fd)

    store = open_folder(disk=Forking())
    commit(store, 1, 1)
    os.link(folder / "state.json", folder.parent / "backup.json")
    try:
        commit(store, 2, 4)
        assert children
        # It does not wait, and would be refused.
        with open(os.open(folder.parent / "backup.json", os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            assert seq_in(file.read()) == 1
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.mark.usefixtures("proc")
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("operation", ["open", "write", "truncate", "fsync", "replace", "link", "unlink"])
def test_a_failure_while_one_is_written_over_leaves_the_state_and_nothing_else(
    folder: Path, open_folder: Callable[..., FolderStore], operation: str, flush: bool
) -> None:
    seq = 0
    for after in range(4):
        disk = FaultyDisk(operation)
        descriptors = len(os.listdir("/proc/self/fd"))
        store = open_folder(disk=disk)
        for _ in range(4):
            seq += 1
            store.commit(checkpoint(seq), [entry(f"{seq}")])
        before = keys(store)
        disk.arm(after)
        try:
            store.commit(checkpoint(seq + 1), [entry(f"{seq + 1}")], flush=flush)
        except DiskError:
            assert operation not in ("link", "unlink")
        disk.operation = ""
        store.release()
        assert not temporaries(folder)
        assert len(os.listdir("/proc/self/fd")) == descriptors
        store = open_folder()
        found = keys(store)
        store.release()
        assert found in (before, [*before, f"{seq + 1}"])
        seq = len(found)


@pytest.mark.usefixtures("proc")
def test_a_file_system_that_is_not_known_to_be_local_is_not() -> None:
    assert not is_local("/proc")

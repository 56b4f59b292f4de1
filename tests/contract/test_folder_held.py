"""What the folder store keeps open across users' code: known by its file, not by a number or a name alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agentrun.errors import AgentrunError, CheckpointError, DiskError, LaterError
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import FolderLease
from agentrun.store.port import HistoryEvent
from agentrun.testing.examples import checkpoint, keys, record, summary
from contract.bench import temporaries
from needs import require

Open = Callable[..., FolderStore]
THEIRS = b"the agent's own"


@pytest.fixture(autouse=True)
def with_proc() -> None:
    require(os.path.exists("/proc/self/fd"), "descriptors cannot be listed", remedy="run it where /proc is mounted")


class Agent:
    """An agent that closes a file twice: the second time the number is ours, and then its next file gets it."""

    def __init__(self, base: Path) -> None:
        self.path = base / "agents-own"
        self.path.write_bytes(THEIRS)
        self.opened: list[int] = []

    def take_over(self, path: Path) -> None:
        """Close our descriptors of that file, and open its own under their numbers."""
        numbers = [int(name) for name in os.listdir("/proc/self/fd") if _is_open(name, path)]
        assert numbers, f"{path.name} is not held"
        for number in numbers:
            own = os.open(self.path, os.O_RDWR)
            os.dup2(own, number)
            os.close(own)
        self.opened += numbers

    @property
    def is_undisturbed(self) -> bool:
        """Its file is as it was, and each of its descriptors still open."""
        return self.path.read_bytes() == THEIRS and all(_is_open(str(number), self.path) for number in self.opened)


def _is_open(name: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}") == str(path)
    except OSError:
        return False


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    for number in agent.opened:
        with suppress(OSError):
            os.close(number)


def commit_another(store: FolderStore) -> None:
    store.commit(checkpoint(3), [record("3")])


def finish(store: FolderStore) -> None:
    store.finish(summary())


@pytest.mark.parametrize(
    ("name", "act"),
    [
        *(("state.json", act) for act in (commit_another, finish)),
        *(("lock", act) for act in (commit_another, finish)),
        *(("", act) for act in (commit_another, finish)),
        ("journal-1.jsonl", commit_another),
    ],
)
def test_a_descriptor_that_an_agent_has_taken_over_is_neither_written_to_nor_closed(
    folder: Path,
    open_folder: Open,
    leases: list[FolderLease],
    agent: Agent,
    name: str,
    act: Callable[[FolderStore], None],
) -> None:
    store = open_folder(redo_limit_bytes=0)
    for seq in (1, 2):
        store.commit(checkpoint(seq), [record(f"{seq}")])
    agent.take_over(folder / name if name else folder)
    before = (folder / "state.json").read_bytes()
    with pytest.raises(DiskError, match="closed by other code in this process"):
        act(store)
    leases[-1].release()
    assert agent.is_undisturbed
    assert (folder / "state.json").read_bytes() == before and not temporaries(folder)
    assert keys(open_folder()) == ["1", "2"]


def test_a_new_state_that_an_agent_closed_while_the_disk_was_waited_for_is_not_put_in_place(
    folder: Path, open_folder: Open, leases: list[FolderLease], agent: Agent
) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [record("1")])
    sync = store.begin(checkpoint(2), [record("2")])
    (temporary,) = temporaries(folder)
    agent.take_over(folder / temporary)
    with pytest.raises(DiskError, match="closed by other code in this process"):
        sync()
    leases[-1].release()
    assert agent.is_undisturbed and keys(open_folder()) == ["1"]


def test_a_journal_that_an_agent_closed_while_the_disk_was_waited_for_is_not_counted_on(
    folder: Path, open_folder: Open, leases: list[FolderLease], agent: Agent
) -> None:
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(1))
    sync = store.begin(checkpoint(2), [record("1")])
    agent.take_over(folder / "journal-1.jsonl")
    with pytest.raises(DiskError, match="closed by other code in this process"):
        sync()
    leases[-1].release()
    assert agent.is_undisturbed and keys(open_folder()) == []


def test_the_log_of_launches_goes_on_in_its_own_file(folder: Path, open_folder: Open, agent: Agent) -> None:
    store = open_folder()
    store.note(HistoryEvent(event="launch"))
    agent.take_over(folder / "log.jsonl")
    for event in ("checkpoint", "stop"):
        store.note(HistoryEvent(event=event))
    assert [event.event for event in store.reader().history()] == ["launch", "checkpoint", "stop"]
    assert agent.is_undisturbed


# ---- the lock, and two runners


def remove(folder: Path) -> None:
    (folder / "lock").unlink()


def replace(folder: Path) -> None:
    remove(folder)
    shutil.copy(folder / "state.json", folder / "lock")


def sign(folder: Path) -> None:
    """As another runner does where flock does nothing."""
    with (folder / "lock").open("r+b") as file:
        text = file.read()
        file.seek(0)
        file.write(text)


@pytest.mark.parametrize("act", [remove, replace, sign])
@pytest.mark.parametrize("when", ["before a commit", "while the disk is waited for"])
def test_without_its_lock_a_runner_writes_nothing_more(
    folder: Path, open_folder: Open, leases: list[FolderLease], act: Callable[[Path], None], when: str
) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [record("1")])
    before = (folder / "state.json").read_bytes()
    assert not leases[-1].is_lost
    with pytest.raises(LaterError, match="lock: was removed, or another runner took the job") as caught:
        if when == "before a commit":
            act(folder)
            store.commit(checkpoint(2), [record("2")])
        else:
            sync = store.begin(checkpoint(2), [record("2")])
            act(folder)
            sync()
    assert caught.value.exit_code == 75 and leases[-1].is_lost
    for further in (lambda: store.commit(checkpoint(2)), lambda: store.finish(summary())):
        with pytest.raises(AgentrunError):
            further()
    assert (folder / "state.json").read_bytes() == before and not temporaries(folder)


def test_of_two_runners_that_take_turns_the_one_without_the_lock_loses_nothing_of_the_other(
    folder: Path, open_folder: Open, leases: list[FolderLease]
) -> None:
    """After any number of commits: a file system gives the same two inode numbers in turn."""
    for commits in range(1, 7):
        first = open_folder()
        seq = len(keys(first))
        first.commit(checkpoint(seq + 1), [record(f"{seq + 1}")])
        (folder / "lock").unlink()
        second = FolderStore(folder)
        leases.append(second.lock(wait_seconds=0))
        second.load()
        for more in range(commits):
            second.commit(checkpoint(seq + 2 + more), [record(f"{seq + 2 + more}")])
        with pytest.raises(LaterError):
            first.commit(checkpoint(seq + 2), [record("of the first")])
        assert keys(second) == [str(n) for n in range(1, seq + 2 + commits)]
    leases[-1].release()


@pytest.mark.parametrize("commits", [1, 2, 3, 4])
def test_where_two_hold_the_same_lock_a_state_of_the_other_is_known_by_its_file(
    folder: Path, open_folder: Open, leases: list[FolderLease], commits: int
) -> None:
    """As on a file system without flock, where both signed at the same instant."""
    store = open_folder()
    store.commit(checkpoint(1), [record("1")])
    found = (folder / "lock").stat()
    other = FolderStore(folder)
    os.rename(folder / "lock", folder / "aside")
    leases.append(other.lock(wait_seconds=0))
    other.load()
    for seq in range(2, 2 + commits):
        other.commit(checkpoint(seq), [record(f"{seq}")])
    os.rename(folder / "aside", folder / "lock")
    os.utime(folder / "lock", ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(CheckpointError, match=r"state\.json: was replaced by another program"):
        store.commit(checkpoint(2), [record("of the first")])
    assert keys(open_folder()) == [str(n) for n in range(1, 2 + commits)]


@pytest.mark.parametrize("name", ["state.json", "lock"])
def test_a_copy_with_the_same_time_and_size_is_another_file(folder: Path, open_folder: Open, name: str) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [record("1")])
    shutil.copy2(folder / name, folder / "copy")
    os.replace(folder / "copy", folder / name)
    with pytest.raises(AgentrunError, match=f"{name}: was (replaced|removed)"):
        store.commit(checkpoint(2), [record("2")])


# ---- the journal


def test_a_backup_made_while_the_launch_runs_keeps_its_journal_and_loads(
    folder: Path, tmp_path: Path, open_folder: Open
) -> None:
    store = open_folder(redo_limit_bytes=0)
    kept: dict[int, Path] = {}
    for seq in range(1, 9):
        store.commit(checkpoint(seq), [record(f"{seq}")])
        if seq % 2:
            kept[seq] = tmp_path / f"backup-{seq}" / "triage"
            kept[seq].parent.mkdir(mode=0o700)
            kept[seq].mkdir(mode=0o700)
            for name in ("state.json", "journal-1.jsonl"):
                os.link(folder / name, kept[seq] / name)
    assert keys(store) == keys(open_folder()) == [str(n) for n in range(1, 9)]
    for seq, backup in kept.items():
        restored = FolderStore(backup, redo_limit_bytes=0)
        lease = restored.lock(wait_seconds=0)
        restored.load()
        assert keys(restored) == [str(n) for n in range(1, seq + 1)]
        restored.commit(checkpoint(seq + 1), [record("after the restore")])
        lease.release()
    assert keys(open_folder()) == [str(n) for n in range(1, 9)]


def move_away(journal: Path) -> None:
    journal.rename(journal.with_name("moved"))


def put_another(journal: Path) -> None:
    text = journal.read_bytes()
    move_away(journal)
    journal.write_bytes(text)


@pytest.mark.parametrize("act", [Path.unlink, move_away, put_another])
def test_nothing_is_acknowledged_in_a_journal_that_nobody_will_find(
    folder: Path, open_folder: Open, act: Callable[[Path], None]
) -> None:
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(1), [record("1")])
    before = (folder / "state.json").read_bytes()
    act(folder / "journal-1.jsonl")
    with pytest.raises(CheckpointError, match=r"journal-1\.jsonl: was (replaced|removed)"):
        store.commit(checkpoint(2), [record("2")])
    assert (folder / "state.json").read_bytes() == before


def test_a_journal_that_became_shorter_is_not_appended_to(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=1 << 20)
    store.commit(checkpoint(1), [record("1")])
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(2), [record("2")])
    store = open_folder(redo_limit_bytes=0)
    os.truncate(folder / "journal-1.jsonl", 3)
    with pytest.raises(CheckpointError, match=r"has 3 bytes, but the run needs"):
        store.commit(checkpoint(3), [record("3")])

"""The folder store: what a disk does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.errors import BusyError, CheckpointError, DiskError
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import HistoryEvent
from agentrun.testing.examples import RUN, checkpoint, keys, record, summary
from contract.bench import FaultyDisk, RecordingDisk, temporaries


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("operation", ["open", "write", "fsync", "replace"])
def test_after_a_commit_that_failed_nothing_more_is_committed(
    folder: Path, open_folder: Callable[..., FolderStore], operation: str, flush: bool
) -> None:
    for after in range(4):
        disk = FaultyDisk(operation)
        store = open_folder(disk=disk, redo_limit_bytes=0 if flush else 16 * 1024)
        loaded = store.load().checkpoint
        seq = loaded.seq if loaded else 0
        store.commit(checkpoint(seq + 1), [record(f"{after}-before")])
        acknowledged = keys(store)
        disk.arm(after)
        try:
            store.commit(checkpoint(seq + 2), [record(f"{after}-unknown")])
        except DiskError as error:
            assert error.exit_code == 74 and str(folder) in error.message
        else:
            continue  # so many calls were not made
        assert not temporaries(folder)
        disk.left = None
        disk.operation = ""
        for next_seq in (seq + 2, seq + 3):
            with pytest.raises(DiskError, match="an earlier write failed"):
                store.commit(checkpoint(next_seq))
        with pytest.raises(DiskError):
            store.compact(checkpoint(seq + 3), [])
        found = keys(open_folder())
        assert found in (acknowledged, [*acknowledged, f"{after}-unknown"])


def test_an_fsync_that_failed_is_never_tried_again(open_folder: Callable[..., FolderStore]) -> None:
    disk = FaultyDisk("fsync")
    store = open_folder(disk=disk)
    store.commit(checkpoint(1))
    disk.arm(0)
    for _ in range(3):
        with pytest.raises(DiskError):
            store.commit(checkpoint(2), [record("a")])
    assert disk.fsyncs_after == 0


@pytest.mark.parametrize(
    ("code", "says"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EFBIG, "limit on file")]
)
def test_a_disk_error_says_what_to_do(open_folder: Callable[..., FolderStore], code: int, says: str) -> None:
    disk = FaultyDisk("write", code=code)
    store = open_folder(disk=disk)
    disk.arm(0)
    with pytest.raises(DiskError, match=says) as caught:
        store.commit(checkpoint(1))
    assert "nothing finished is lost" in caught.value.message


needs_proc = pytest.mark.usefixtures("proc")


@needs_proc
def test_a_commit_is_one_file_fsync_and_one_folder_fsync_and_the_journal_comes_first(
    open_folder: Callable[..., FolderStore],
) -> None:
    disk = RecordingDisk()
    store = open_folder(disk=disk, redo_limit_bytes=300)
    disk.calls.clear()
    store.commit(checkpoint(1), [record("a")])
    state = ["write tmp", "fsync tmp", "replace state.json", "fsync triage"]
    assert disk.calls == state
    disk.calls.clear()
    store.commit(checkpoint(2), [record("b")])
    # The journal's entry in the folder, then its bytes; only then the state that counts on both gets its name.
    synced = ["fsync triage", "fsync journal-1.jsonl", "fsync tmp"]
    assert disk.calls == ["write journal-1.jsonl", "write tmp", *synced, "replace state.json", "fsync triage"]


@needs_proc
def test_the_first_half_of_a_commit_waits_for_nothing_and_gives_nothing_its_name(
    open_folder: Callable[..., FolderStore],
) -> None:
    disk = RecordingDisk()
    store = open_folder(disk=disk, redo_limit_bytes=1)
    disk.calls.clear()
    sync = store.begin(checkpoint(1), [record("a")])
    assert disk.calls == ["write journal-1.jsonl", "write tmp"]
    sync()
    assert disk.calls[-2:] == ["replace state.json", "fsync triage"]


@needs_proc
def test_a_new_journal_is_on_disk_before_it_is_named_and_the_old_one_goes_last(
    open_folder: Callable[..., FolderStore],
) -> None:
    disk = RecordingDisk()
    store = open_folder(disk=disk, redo_limit_bytes=1)
    refs = store.commit(checkpoint(1), [record("a")])
    disk.calls.clear()
    store.compact(checkpoint(2), refs)
    assert disk.calls == [
        "write journal-2.jsonl",
        "fsync journal-2.jsonl",
        "fsync triage",
        "write tmp",
        "fsync tmp",
        "replace state.json",
        "fsync triage",
        "unlink journal-1.jsonl",
    ]


@needs_proc
def test_the_state_goes_only_when_the_summary_is_on_disk(open_folder: Callable[..., FolderStore]) -> None:
    disk = RecordingDisk()
    store = open_folder(disk=disk, redo_limit_bytes=1)
    store.commit(checkpoint(1), [record("a")])
    disk.calls.clear()
    store.finish(summary())
    gone = disk.calls.index("unlink state.json")
    filed = disk.calls.index(f"replace {RUN}.json")
    assert disk.calls.index("fsync tmp") < filed < disk.calls.index("fsync runs", filed) < gone
    assert disk.calls.index(f"replace {RUN}.jsonl") < gone
    assert disk.calls[gone - 2 :] == ["fsync runs", "fsync triage", "unlink state.json", "fsync triage"]


def test_a_state_whose_run_has_a_summary_is_a_finished_run(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(1), [record("a")])
    state = (folder / "state.json").read_bytes()
    store.finish(summary(total=1))
    (folder / "state.json").write_bytes(state)
    store = open_folder(load=False)
    loaded = store.load()
    assert loaded.finished is not None and (loaded.finished.run_id, loaded.finished.total) == (RUN, 1)
    store.finish(loaded.finished)
    assert not (folder / "state.json").exists()
    assert len(store.summaries()) == 1
    assert (folder / "runs" / f"{RUN}.jsonl").exists()


def test_a_summary_that_cannot_be_read_is_written_again(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1))
    (folder / "runs").mkdir(mode=0o700)
    (folder / "runs" / f"{RUN}.json").write_bytes(b"")
    assert store.load().finished is None
    store.finish(summary())
    (filed,) = store.summaries()
    assert (filed.run_id, filed.status) == (RUN, "finished")


def test_only_the_last_twenty_summaries_and_three_journals_are_kept(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder()
    for number in range(25):
        run_id = f"20260504T0000{number:02}-0"
        store.commit(checkpoint(1, run_id=run_id), [record("a")])
        store.finish(summary(run_id, total=number))
        store.prune()
    assert [one.total for one in store.summaries()] == list(range(24, 4, -1))
    assert sorted(path.name for path in (folder / "runs").glob("*.jsonl")) == [
        f"20260504T0000{number}-0.jsonl" for number in (22, 23, 24)
    ]


def test_pruning_removes_what_no_checkpoint_names(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(1), [record("a")])
    stale = [".state.json.0123456789ab.tmp", "journal-9.jsonl", "items-1-a.spool", "1.written"]
    for name in [*stale, "items-2-b.spool", "2.written", "mine.txt"]:
        (folder / name).write_bytes(b"x")
    store = open_folder()
    assert {*stale} <= {path.name for path in folder.iterdir()}
    store.prune(keep=["items-2-b.spool", "2.written"])
    left = {path.name for path in folder.iterdir()}
    assert left == {"lock", "state.json", "journal-1.jsonl", "items-2-b.spool", "2.written", "mine.txt"}


def test_finishing_leaves_the_side_files_of_the_next_run(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1))
    store.keep("items-1-b.spool", [b"x"])
    store.finish(summary(status="abandoned"))
    assert (folder / "items-1-b.spool").exists()


def test_what_is_set_aside_is_kept_for_ever(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(1), [record("a")])
    journal = (folder / "journal-1.jsonl").read_bytes()
    (folder / "state.json").write_bytes(b"damaged")
    name = store.set_aside().removeprefix("runs/").removesuffix(".*")
    for number in range(5):
        store.commit(checkpoint(1, run_id=f"2026{number}"))
        store.finish(summary(f"2026{number}"))
        store.prune()
    assert (folder / "runs" / f"{name}.state").read_bytes() == b"damaged"
    assert (folder / "runs" / f"{name}.journal-1.jsonl").read_bytes() == journal


def test_a_lock_file_that_somebody_unlinked_does_not_give_two_holders_of_one_name(folder: Path) -> None:
    first, second, third = FolderStore(folder), FolderStore(folder), FolderStore(folder)
    lease = first.lock(wait_seconds=0)
    (folder / "lock").unlink()
    other = second.lock(wait_seconds=0)
    with pytest.raises(BusyError):
        third.lock(wait_seconds=0)
    lease.release()
    with pytest.raises(BusyError):
        third.lock(wait_seconds=0)
    other.release()
    assert (folder / "lock").exists()


def test_a_journal_larger_than_a_piece_is_read_whole(open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    sizes = [10, 700_000, 700_000, 3_000_000, 5, 1_048_576, 20]
    refs = [store.commit(checkpoint(n), [record(f"k{n}", "z" * size)])[0] for n, size in enumerate(sizes, 1)]
    assert [len(record.value) for _, record in store.scan()] == sizes
    assert [len(record.value) for record in store.read(refs[::-1])] == sizes[::-1]
    moved = store.compact(checkpoint(len(sizes) + 1), refs[1:])
    assert [len(record.value) for record in store.read(moved)] == sizes[1:]


def test_the_log_of_launches_is_never_an_error(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    (folder / "log.jsonl").mkdir()
    store.note(HistoryEvent(event="launch"))
    store.commit(checkpoint(1))


def test_the_state_of_a_finished_run_put_over_that_of_another_is_noticed_and_nothing_is_touched(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [record("a")])
    old = (folder / "state.json").read_bytes()
    store.finish(summary())
    second = checkpoint(1)
    second.run_id = f"{second.run_id}-2"
    store.commit(second, [record("b")])
    (folder / "state.json").write_bytes(old)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError, match="belongs to a run that has finished"):
        FolderStore(folder).load()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"} == {
        path: text for path, text in before.items() if path.name != "lock"
    }

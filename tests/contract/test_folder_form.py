"""The folder store: what is on disk, and who may touch it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from msgspec import Raw

from agentrun.checkpoint.checkpoint import Running
from agentrun.errors import CheckpointError, DiskError, UsageError
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import FolderLease
from agentrun.store.port import HistoryEvent
from agentrun.testing.examples import checkpoint, keys, record, summary


def test_state_json_has_the_fields_of_the_design_in_their_order(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder()
    store.commit(
        checkpoint(1, total=3, done=[[0, 0]], running=[Running(index=1, key="b")]), [record("a", {"é": "\u2028"})]
    )
    text = (folder / "state.json").read_bytes()
    state = orjson.loads(text)
    assert " ".join(state) == (
        "version job run_id seq last_completed total counts done failed waiting running outputs journal context usage "
        "stopped paused started_at updated_at check"
    )
    assert state["outputs"][0]["output"] == {"é": "\u2028"}
    assert state["journal"] == {"name": "journal-1.jsonl", "length": 0}
    # A field a line, for people; a record a line, as in the journal.
    assert [line.split(b'"')[1] for line in text.split(b"\n")[1:-2] if line.startswith(b'"')] == [
        name.encode() for name in state
    ]
    open_folder(redo_limit_bytes=0).commit(checkpoint(2))
    line = b"".join(line for line in text.split(b"\n") if line.startswith(b'{"crc"'))
    assert (folder / "journal-1.jsonl").read_bytes() == line + b"\n"


def test_outputs_move_to_the_journal_only_when_they_pass_the_limit(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1000)
    for seq in range(1, 60):
        store.commit(checkpoint(seq), [record(f"k{seq}")])
        state = orjson.loads((folder / "state.json").read_bytes())
        size = sum(len(orjson.dumps(record)) + 1 for record in state["outputs"])
        assert size <= 1000
        journal = folder / "journal-1.jsonl"
        assert state["journal"]["length"] == (journal.stat().st_size if journal.exists() else 0)
    assert state["journal"]["length"] > 5000
    assert len(keys(store)) == 59


def test_an_output_need_not_be_in_the_form_that_we_would_write(open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    odd = b'{ "a" : 1.50,\n "b": [1e2, "\\u00e9"] }'
    store.commit(checkpoint(1), [record("a", Raw(odd)), record("b", Raw(b'{"a" : 1.0e2}'))])
    store = open_folder()
    assert [r.value for _, r in store.scan()] == [{"a": 1.5, "b": [100.0, "é"]}, {"a": 100.0}]


def test_modes_are_for_the_owner_alone_and_git_ignores_all(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    before = os.umask(0)
    try:
        store = open_folder(redo_limit_bytes=1)
        store.commit(checkpoint(1), [record("a")])
        store.keep("job.json", [b"{}"])
        store.note(HistoryEvent(event="launch"))
        store.commit(checkpoint(2), [record("b")])
        store.finish(summary())
    finally:
        os.umask(before)
    assert (folder.parent / ".gitignore").read_text() == "*\n"
    for path in [folder.parent, *folder.parent.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.lstat().st_mode) == expected, path


@pytest.mark.parametrize("where", ["root", "job"])
def test_a_folder_that_others_can_write_is_refused(folder: Path, where: str) -> None:
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder.parent if where == "root" else folder).chmod(0o770)
    with pytest.raises(UsageError, match="can be written by others"):
        FolderStore(folder).lock(wait_seconds=0)


@pytest.mark.parametrize("name", ["", "lock", "state.json", "journal-1.jsonl", "runs"])
def test_a_planted_link_is_refused_and_what_it_leads_to_is_left_alone(
    tmp_path: Path, folder: Path, open_folder: Callable[..., FolderStore], leases: list[FolderLease], name: str
) -> None:
    target = tmp_path / "target"
    if name:
        store = open_folder(redo_limit_bytes=1)
        store.commit(checkpoint(1), [record("a")])
        leases[-1].release()
        if (folder / name).is_file():
            (folder / name).rename(target)
        else:
            target.mkdir()
        (folder / name).symlink_to(target)
    else:
        target.mkdir(mode=0o700)
        folder.parent.mkdir(mode=0o700)
        folder.symlink_to(target)
    before = sorted(target.iterdir()) if target.is_dir() else target.read_bytes()
    with pytest.raises((DiskError, UsageError, CheckpointError), match="link"):
        store = open_folder(redo_limit_bytes=1)
        list(store.scan())
        store.finish(summary())
    assert (sorted(target.iterdir()) if target.is_dir() else target.read_bytes()) == before


def test_a_planted_log_is_not_written_through(
    tmp_path: Path, folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder()
    (folder / "log.jsonl").symlink_to(tmp_path / "elsewhere")
    store.note(HistoryEvent(event="launch"))
    assert not (tmp_path / "elsewhere").exists()

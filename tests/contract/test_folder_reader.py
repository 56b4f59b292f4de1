"""The reader of a job's folder: old states, damage, and what a runner moves while it looks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrun.errors import CheckpointError
from agentrun.store.folder.catalogue import FolderCatalogue
from agentrun.store.folder.store import FolderStore
from agentrun.store.port import HistoryEvent, Reader
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, end_run, keys, record, reopen, summary
from contract.bench import edit_state

Open = Callable[..., FolderStore]
OLD = Path(__file__).parents[1] / "data" / "state-v1"


# ---- an old state


def test_an_old_state_is_read_without_changing_it() -> None:
    before = {path.name: path.read_bytes() for path in OLD.iterdir()}
    with FolderStore(OLD).reader() as reader:
        found = reader.checkpoint
        assert found is not None and reader.summary is None
        assert (found.job, found.seq, found.total, found.last_completed) == ("state-v1", 7, 8, 4)
        assert (found.context.launches, found.context.kept["run"]) == (1, {"retries": 0})
        records = [one for _, one in reader.records()]
        assert [(one.seq, one.kind, one.key) for one in records] == [
            (2, "done", "docs/0.txt"),
            (3, "failed", "docs/1.txt"),
            (4, "skipped", "docs/2.txt"),
            (5, "done", "docs/3.txt"),
            (6, "done", "docs/4.txt"),
        ]
        assert records[0].value == {"text": "document 0 é\u2028"}
        assert records[1].error is not None and records[1].error.message == "no"
    assert {path.name: path.read_bytes() for path in OLD.iterdir()} == before


@pytest.mark.parametrize("needle", ["docs/", "document 3", "é", "not this one", "agentrun.errors.Fail", "nothing"])
def test_a_search_in_an_old_state_finds_what_the_default_body_finds(needle: str) -> None:
    with FolderStore(OLD).reader() as reader:
        assert list(reader.search(needle)) == list(Reader.search(reader, needle))


def test_an_old_state_is_loaded_continued_and_finished(folder: Path, open_folder: Open) -> None:
    shutil.copytree(OLD, folder)
    for path in (folder.parent, folder):
        path.chmod(0o700)
    store = open_folder(load=False)
    found = store.load().checkpoint
    assert found is not None and found.seq == 7
    with store.reader() as reader:
        assert reader.checkpoint == found and list(reader.records()) == list(store.scan())
    found.seq += 1
    (ref,) = store.commit(found, [record("docs/5.txt")])
    store = open_folder(redo_limit_bytes=0)
    assert keys(store) == [f"docs/{n}.txt" for n in range(6)]
    assert [one.key for one in store.read([ref])] == ["docs/5.txt"]
    assert b"".join(store.fetch("job.json") or ())
    store.finish(summary(found.run_id))
    reopen(store, found.run_id)
    assert len(keys(store)) == 6


# ---- searching


def test_a_checksum_is_not_found(folder: Path, open_folder: Open) -> None:
    open_folder().commit(checkpoint(1), [record("a")])
    text = (folder / "state.json").read_bytes()
    crc = text[text.index(b'{"crc":"') + 8 :][:8].decode()
    with FolderStore(folder).reader() as reader:
        assert list(reader.search(crc)) == [] and list(reader.search("crc")) == []


@pytest.mark.parametrize("redo_limit_bytes", [0, 16 * 1024])
def test_every_character_is_found(open_folder: Open, redo_limit_bytes: int) -> None:
    texts = [chr(code) for code in (*range(0x100), 0x2028, 0x2029, 0xFFFF, 0x1F600)]
    store = open_folder(redo_limit_bytes=redo_limit_bytes)
    store.commit(checkpoint(1), [record(f"k{n}", f"<<{text}>>") for n, text in enumerate(texts)])
    with store.reader() as reader:
        for n, text in enumerate(texts):
            assert [one.key for _, one in reader.search(f"<<{text}>>")] == [f"k{n}"]


# ---- damage


def test_a_damaged_record_is_an_error_and_not_a_shorter_list(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=0)
    refs = [store.commit(checkpoint(seq), [record(f"k{seq}")])[0] for seq in range(1, 4)]
    path = folder / "journal-1.jsonl"
    text = bytearray(path.read_bytes())
    text[refs[1] + 30] ^= 1
    path.write_bytes(text)
    with FolderStore(folder).reader() as reader:
        for act in (
            lambda: list(reader.records()),
            lambda: list(reader.records(since=refs[1])),
            lambda: list(reader.read([refs[1]])),
            lambda: list(reader.search("k")),
        ):
            with pytest.raises(CheckpointError, match=f"the record at byte {refs[1]} is damaged"):
                act()
        assert [one.key for _, one in reader.records(since=refs[1] + 1)] == ["k3"]


@pytest.mark.parametrize("since", [0, 1, 10**6])
def test_a_journal_that_is_too_short_is_an_error_wherever_the_reading_begins(
    folder: Path, open_folder: Open, since: int
) -> None:
    store = open_folder(redo_limit_bytes=0)
    store.commit(checkpoint(1), [record("a", "x" * 2_000_000)])
    os.truncate(folder / "journal-1.jsonl", 1_500_000)
    with FolderStore(folder).reader() as reader, pytest.raises(CheckpointError, match="ends at byte 1500000"):
        list(reader.records(since=since))


def test_a_missing_journal_is_an_error(folder: Path, open_folder: Open) -> None:
    open_folder(redo_limit_bytes=0).commit(checkpoint(1), [record("a")])
    (folder / "journal-1.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"the journal that state\.json names is missing"):
        FolderStore(folder).reader()


def test_an_edited_state_is_read_only_where_edits_are_accepted(folder: Path, open_folder: Open) -> None:
    open_folder().commit(checkpoint(1), [record("a")])
    edit_state(folder, lambda state: state["outputs"][0].update(output="by hand"))
    with pytest.raises(CheckpointError, match="--accept-edits"):
        FolderStore(folder).reader()
    with FolderStore(folder).reader(accept_edits=True) as reader:
        assert [one.value for _, one in reader.records()] == ["by hand"]


def test_the_history_is_read_around_what_cannot_be_read(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    first, second = HistoryEvent(event="launch", launch=1), HistoryEvent(event="stop", launch=1, reason="")
    store.note(first)
    with (folder / "log.jsonl").open("ab") as file:
        file.write(
            b'{"torn\n[1]\n\xff\n{"event": "\xff"}\n{"event": 1}\n{"at": "2026"}\n{"event":' + b"[" * 9999 + b"\n"
        )
    store.note(second)
    with store.reader() as reader:
        assert list(reader.history()) == [first, second]
    (folder / "log.jsonl").unlink()
    (folder / "log.jsonl").mkdir()
    with store.reader() as reader:
        assert list(reader.history()) == []


# ---- a run that is ending


@pytest.mark.parametrize("journal_is", ["filed", "about to be filed"])
def test_a_finish_that_was_killed_before_the_state_went_shows_the_run_as_ended(
    folder: Path, open_folder: Open, journal_is: str
) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [record("a")])
    store.commit(checkpoint(2), [record("b")])
    state = (folder / "state.json").read_bytes()
    store.finish(summary(total=2))
    (folder / "state.json").write_bytes(state)
    if journal_is != "filed":
        (folder / "runs" / f"{RUN}.jsonl").rename(folder / "journal-1.jsonl")
    with FolderStore(folder).reader() as reader:
        assert reader.checkpoint is None and reader.summary is not None and reader.summary.total == 2
        assert [one.key for _, one in reader.records()] == ["a", "b"]
    store = open_folder(load=False)
    loaded = store.load()
    assert loaded.finished is not None
    store.finish(loaded.finished)
    assert not (folder / "state.json").exists()
    with FolderStore(folder).reader() as reader:
        assert [one.key for _, one in reader.records()] == ["a", "b"]


# ---- the catalogue


def test_a_job_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    catalogue = FolderCatalogue(tmp_path / ".agentrun")
    for name, run_id in (("archive", RUN), ("triage", LATER_RUN)):
        store = catalogue.store(name)
        lease = store.lock()
        store.load()
        end_run(store, run_id)
        lease.release()
    (tmp_path / ".agentrun" / "archive" / "state.json").write_bytes(b"damaged")
    assert catalogue.names() == ["archive", "triage"]
    assert [catalogue.find(run_id) for run_id in (RUN, LATER_RUN, "20200101T000000-0")] == ["archive", "triage", None]
    assert catalogue.kept_flags("archive") is None

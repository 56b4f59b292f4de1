"""The folder store: what is not as it was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrun.checkpoint.record import encode_record
from agentrun.errors import CheckpointError
from agentrun.store.folder.store import FolderStore
from contract.bench import checkpoint, edit, entry, keys


def test_any_flipped_byte_of_state_json_is_noticed(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1, total=2, running=[{"index": 1, "key": "b"}]), [entry("a")])
    path = folder / "state.json"
    text = path.read_bytes()
    store.release()
    reader = FolderStore(folder)
    for at in range(len(text)):
        for bits in (0x01, 0x20, 0x80):
            path.write_bytes(text[:at] + bytes([text[at] ^ bits]) + text[at + 1 :])
            with pytest.raises(CheckpointError) as caught:
                reader.load()
            assert caught.value.exit_code == 65 and str(path) in caught.value.message
    for cut in (0, 1, len(text) // 2, len(text) - 1):
        path.write_bytes(text[:cut])
        with pytest.raises(CheckpointError):
            reader.load()
    path.write_bytes(text)
    assert reader.load().checkpoint is not None


def test_any_flipped_or_missing_byte_of_the_journal_is_noticed(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    for seq in range(1, 4):
        store.commit(checkpoint(seq), [entry(f"k{seq}")])
    path = folder / "journal-1.jsonl"
    text = path.read_bytes()
    store.release()
    reader = FolderStore(folder)
    for at in range(len(text)):
        for changed in (text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :], text[:at]):
            path.write_bytes(changed)
            with pytest.raises(CheckpointError) as caught:
                reader.load()
                list(reader.scan())
            assert str(path) in caught.value.message and "--fresh" in caught.value.message
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        reader.load()


def test_what_is_past_the_journals_length_is_never_data(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [entry("a")])
    whole = (folder / "journal-1.jsonl").read_bytes()
    for tail in (
        b"\0" * 5000,
        b"torn",
        encode_record(2, entry("unacknowledged").fields, b"1") + b"\n",
        encode_record(2, entry("torn").fields, b"1")[:-3],
    ):
        (folder / "journal-1.jsonl").write_bytes(whole + tail)
        store = open_folder(redo_limit_bytes=1)
        assert keys(store) == ["a"]
    store.commit(checkpoint(2), [entry("b")])
    store = open_folder()
    assert keys(store) == ["a", "b"]


def test_an_older_state_json_put_back_is_noticed_where_the_journal_shows_it(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [entry("a")])
    old = (folder / "state.json").read_bytes()
    store.commit(checkpoint(2), [entry("b")])
    store.commit(checkpoint(3), [entry("c")])
    (folder / "state.json").write_bytes(old)
    store.release()
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(CheckpointError, match=r"older than journal-1\.jsonl \(seq 1, .* goes on to 3\)"):
        FolderStore(folder).load()
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_state_json_from_before_a_compaction_is_noticed(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    refs = store.commit(checkpoint(1), [entry("a")])
    old = (folder / "state.json").read_bytes()
    store.compact(checkpoint(2), refs)
    assert not (folder / "journal-1.jsonl").exists()
    (folder / "state.json").write_bytes(old)
    with pytest.raises(CheckpointError, match=r"journal-1\.jsonl: is missing"):
        open_folder()


def test_a_state_json_that_another_program_replaced_is_not_written_over(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder()
    store.commit(checkpoint(1))
    theirs = folder / "theirs"
    theirs.write_bytes(b"theirs")
    theirs.replace(folder / "state.json")
    with pytest.raises(CheckpointError, match="another program"):
        store.commit(checkpoint(2))
    assert (folder / "state.json").read_bytes() == b"theirs"


def test_a_newer_version_is_refused_even_with_accept_edits(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    open_folder().commit(checkpoint(1))
    path = folder / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    for accept in (False, True):
        with pytest.raises(CheckpointError, match="version 2, and this agentrun reads up to 1"):
            open_folder(accept_edits=accept)


def test_an_edited_output_is_taken_with_accept_edits(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    (ref,) = store.commit(checkpoint(1), [entry("a", {"category": "wrong"})])

    def change(state: dict[str, Any]) -> None:
        state["outputs"][0]["output"] = {"category": "right", "by": "hand, longer than before"}
        state["context"]["carry"] = [1, 2]

    edit(folder, change)
    with pytest.raises(CheckpointError, match="--accept-edits"):
        open_folder()
    store = open_folder(accept_edits=True)
    store.commit(checkpoint(2), [entry("b")])
    store.commit(checkpoint(3), flush=True)
    store = open_folder()
    assert [r["output"] for r in store.read([ref])] == [{"category": "right", "by": "hand, longer than before"}]
    assert keys(store) == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("job", 3, "job is 3"),
        ("run_id", "../../x", "run_id is"),
        ("seq", -1, "seq is -1"),
        ("seq", True, "seq is true"),
        ("last_completed", -2, "last_completed is -2"),
        ("total", "many", "total is"),
        ("counts", [], "counts is"),
        ("done", [[3, 1]], "done is"),
        ("failed", [1], "failed is"),
        ("running", ["a"], "running is"),
        ("running", [{"index": 0}], "running is"),
        ("outputs", {}, "outputs is"),
        ("outputs", ["a"], "outputs is"),
        ("journal", {"name": "../journal-1.jsonl", "length": 0}, "journal is"),
        ("journal", {"name": "journal-1.jsonl", "length": -1}, "journal is"),
        ("context", {}, "context has no launches"),
        ("context.launches", "two", "context.launches is"),
        ("context.date", 5, "context.date is"),
        ("context.spool", "../../etc/passwd", "context.spool is"),
        ("context.deaths", {"a": "b"}, "context.deaths is"),
        ("context.kept", 1, "context.kept is"),
        ("outputs.0.kind", "finished", "kind is 'finished'"),
        ("outputs.0.index", -1, "index is -1"),
        ("outputs.0.index", 2**32, "index is"),
        ("outputs.0.gen", None, "gen is None"),
        ("outputs.0.hash", "xyz", "hash is 'xyz'"),
        ("outputs.0.hash", "f" * 17, "hash is"),
        ("outputs.0.key", 7, "key is 7"),
        ("outputs.0.agent", None, "agent is None"),
        ("outputs.0.stamp", "now", "stamp is 'now'"),
        ("outputs.0.seq", 99, "its seq 99 is beyond"),
        ("outputs.0", {"key": "a"}, "seq is missing"),
    ],
)
def test_a_nonsensical_edit_is_refused_with_the_name_of_the_field(
    folder: Path, open_folder: Callable[..., FolderStore], path: str, value: Any, named: str
) -> None:
    open_folder().commit(checkpoint(1), [entry("a")])

    def change(state: dict[str, Any]) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = state
        for part in parents:
            place = place[part]
        place[last] = value

    edit(folder, change)
    before = (folder / "state.json").read_bytes()
    with pytest.raises(CheckpointError) as caught:
        list(open_folder(accept_edits=True).scan())
    assert named in caught.value.message
    assert (folder / "state.json").read_bytes() == before


@pytest.mark.parametrize("name", ["run_id", "outputs", "journal", "context", "check"])
def test_a_field_that_an_edit_removed_is_named(
    folder: Path, open_folder: Callable[..., FolderStore], name: str
) -> None:
    open_folder().commit(checkpoint(1), [entry("a")])
    edit(folder, lambda state: state.pop(name))
    if name == "check":
        assert keys(open_folder(accept_edits=True)) == ["a"]
        return
    with pytest.raises(CheckpointError, match=f"has no {name}"):
        open_folder(accept_edits=True)

"""The folder store: what is not as it was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.checkpoint.checkpoint import Running
from agentrun.checkpoint.record import encode_record
from agentrun.errors import CheckpointError, DiskError
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import live_holder
from agentrun.testing.examples import checkpoint, keys, record, summary
from agentrun.views.jobs import view_job
from contract.bench import edit_state


def test_any_flipped_byte_of_state_json_is_noticed(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1, total=2, running=[Running(index=1, key="b")]), [record("a")])
    path = folder / "state.json"
    text = path.read_bytes()
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
        store.commit(checkpoint(seq), [record(f"k{seq}")])
    path = folder / "journal-1.jsonl"
    text = path.read_bytes()
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
    store.commit(checkpoint(1), [record("a")])
    whole = (folder / "journal-1.jsonl").read_bytes()
    for tail in (
        b"\0" * 5000,
        b"torn",
        encode_record(record("unacknowledged", seq=2)) + b"\n",
        encode_record(record("torn", seq=2))[:-3],
    ):
        (folder / "journal-1.jsonl").write_bytes(whole + tail)
        store = open_folder(redo_limit_bytes=1)
        assert keys(store) == ["a"]
    store.commit(checkpoint(2), [record("b")])
    store = open_folder()
    assert keys(store) == ["a", "b"]


def test_an_older_state_json_put_back_is_noticed_where_the_journal_shows_it(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [record("a")])
    old = (folder / "state.json").read_bytes()
    store.commit(checkpoint(2), [record("b")])
    store.commit(checkpoint(3), [record("c")])
    (folder / "state.json").write_bytes(old)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(CheckpointError, match=r"older than journal-1\.jsonl \(its seq is 1, but .* continues to 3\)"):
        FolderStore(folder).load()
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_state_json_from_before_a_compaction_is_noticed(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    refs = store.commit(checkpoint(1), [record("a")])
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
        with pytest.raises(CheckpointError, match="version 2, and this agentrun reads versions up to 1"):
            open_folder(accept_edits=accept)


def test_an_edited_output_is_taken_with_accept_edits(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    (ref,) = store.commit(checkpoint(1), [record("a", {"category": "wrong"})])

    def change(state: dict[str, Any]) -> None:
        state["outputs"][0]["output"] = {"category": "right", "by": "hand, longer than before"}
        state["context"]["carry"] = [1, 2]

    edit_state(folder, change)
    with pytest.raises(CheckpointError, match="--accept-edits"):
        open_folder()
    store = open_folder(accept_edits=True)
    store.commit(checkpoint(2), [record("b")])
    for seq in range(3, 200):
        store.commit(checkpoint(seq), [record("b")])
    store = open_folder()
    assert [r.value for r in store.read([ref])] == [{"category": "right", "by": "hand, longer than before"}]
    assert set(keys(store)) == {"a", "b"}


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("job", 3, "job is wrong"),
        ("run_id", "../../x", "run_id is wrong"),
        ("seq", -1, "seq is wrong"),
        ("seq", True, "seq is wrong"),
        ("last_completed", -2, "last_completed is wrong"),
        ("total", "many", "total is wrong"),
        ("counts", [], "counts is wrong"),
        ("done", [[3, 1]], "done has the range [3, 1]"),
        ("failed", [1], "failed[0] is wrong"),
        ("running", ["a"], "running[0] is wrong"),
        ("running", [{"index": 0}], "`key`"),
        ("outputs", {}, "outputs is wrong"),
        ("outputs", ["a"], "a record is 'a'"),
        ("journal", {"name": "../journal-1.jsonl", "length": 0}, "journal.name is wrong"),
        ("journal", {"name": "lock", "length": 0}, "journal.name is 'lock'"),
        ("journal", {"name": "journal-x.jsonl", "length": 0}, "journal.name is"),
        ("journal", {"name": "journal-1.jsonl", "length": -1}, "journal.length is wrong"),
        ("context", {}, "`launches`"),
        ("context.launches", "two", "context.launches is wrong"),
        ("context.date", 5, "context.date is"),
        ("context.spool", "../../etc/passwd", "context.spool is"),
        ("context.deaths", {"a": "b"}, "context.deaths[...] is wrong"),
        ("context.kept", 1, "context.kept is"),
        ("outputs.0.kind", "finished", "kind is wrong"),
        ("outputs.0.index", -1, "index is wrong"),
        ("outputs.0.index", 2**32, "index is wrong"),
        ("outputs.0.gen", None, "gen is wrong"),
        ("outputs.0.hash", "xyz", "hash is 'xyz'"),
        ("outputs.0.hash", "f" * 17, "hash is"),
        ("outputs.0.key", 7, "key is wrong"),
        ("outputs.0.agent", None, "agent is wrong"),
        ("outputs.0.stamp", "now", "stamp is wrong"),
        ("outputs.0.seq", 99, "its seq 99 is beyond"),
        ("outputs.0", {"key": "a"}, "`kind`"),
    ],
)
def test_a_nonsensical_edit_is_refused_with_the_name_of_the_field(
    folder: Path, open_folder: Callable[..., FolderStore], path: str, value: Any, named: str
) -> None:
    open_folder().commit(checkpoint(1), [record("a")])

    def change(state: dict[str, Any]) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = state
        for part in parents:
            place = place[part]
        place[last] = value

    edit_state(folder, change)
    before = (folder / "state.json").read_bytes()
    with pytest.raises(CheckpointError) as caught:
        list(open_folder(accept_edits=True).scan())
    assert named in caught.value.message
    assert (folder / "state.json").read_bytes() == before


@pytest.mark.parametrize("name", ["run_id", "outputs", "journal", "context", "check"])
def test_a_field_that_an_edit_removed_is_named(
    folder: Path, open_folder: Callable[..., FolderStore], name: str
) -> None:
    open_folder().commit(checkpoint(1), [record("a")])
    edit_state(folder, lambda state: state.pop(name))
    if name == "check":
        assert keys(open_folder(accept_edits=True)) == ["a"]
        return
    with pytest.raises(CheckpointError, match=f"has no {name}"):
        open_folder(accept_edits=True)


def test_a_summary_that_cannot_be_read_hides_no_other(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    for run_id in ("20260101T000000-a", "20260102T000000-b"):
        store.commit(checkpoint(1, run_id=run_id))
        store.finish(summary(run_id))
    path = folder / "runs" / "20260102T000000-b.json"
    text = path.read_bytes()
    for damaged in (text.replace(b"finish", b"fini\xffh"), text[:-5], b"[" * 100_000, b"{}"):
        path.write_bytes(damaged)
        assert [one.run_id for one in FolderStore(folder).summaries()] == ["20260101T000000-a"]


def test_a_folder_that_cannot_be_listed_or_cleared_is_a_clear_error(
    folder: Path, open_folder: Callable[..., FolderStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [record("a")])

    def refuse(path: Any, **_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", refuse)
        with pytest.raises(DiskError, match="permission denied"):
            store.clear()
    (folder / "runs").symlink_to("runs")
    with pytest.raises(DiskError, match="runs"):
        store.summaries()
    assert view_job(store, "job").status == "damaged"


def test_a_holder_that_a_newer_version_wrote_is_still_seen(folder: Path) -> None:
    lease = FolderStore(folder).lock()
    path = folder / "lock"
    known = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps(known | {"namespace": 4026531836}))
    assert (found := live_holder(folder)) is not None and found.mark == lease.mark
    for wrong in ({"pid": "1"}, {"host": 5}, {"mark": None}):
        path.write_bytes(orjson.dumps(known | wrong))
        assert live_holder(folder) is None
    lease.release()

"""The store's contract, on every store; and what only the folder has: its files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.checkpoint import Checkpoint
from agentrun.errors import BusyError, CheckpointError, DiskError, UsageError
from agentrun.record import encode_record
from agentrun.store.disk import Disk
from agentrun.store.folder import FolderStore
from agentrun.store.memory import MemoryStore
from agentrun.store.port import Entry, Store

RUN = "20260504T220311-0a2f19f3a1c"


def checkpoint(seq: int, *, run_id: str = RUN, **more: Any) -> Checkpoint:
    context = {"launches": 1, "date": "2026-05-04", **more.pop("context", {})}
    return Checkpoint(job="triage", run_id=run_id, seq=seq, context=context, started_at="2026-05-04", **more)


def entry(key: str, output: Any = "x" * 40, **more: Any) -> Entry:
    fields = {
        "kind": "done",
        "key": key,
        "gen": 0,
        "index": 0,
        "hash": "0" * 16,
        "agent": "v1",
        "launch": 1,
        "at": 1.5,
        "seconds": 0.25,
        **more,
    }
    return Entry(fields, orjson.dumps(output))


def summary(run_id: str = RUN, **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "job": "triage", "status": "finished", **more}


def keys(store: Store) -> list[str]:
    return [record["key"] for _, record in store.scan()]


def began(store: Store) -> Store:
    store.lock(wait_seconds=0)
    store.load()
    return store


@pytest.fixture(params=["folder", "folder with a small redo part", "memory"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Gives the store as the next launch would open it; all of them are released at the end."""
    opened: list[Store] = []
    memory = MemoryStore()

    def open_store() -> Store:
        if request.param == "memory":
            return memory
        limit = 200 if "small" in request.param else 16 * 1024
        opened.append(FolderStore(tmp_path / ".agentrun" / "triage", redo_limit_bytes=limit))
        return opened[-1]

    yield open_store
    for store in (memory, *opened):
        store.release()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".agentrun" / "triage"


@pytest.fixture
def open_folder(folder: Path) -> Iterator[Callable[..., FolderStore]]:
    """A folder store; each call gives back the lock of the one before, as the end of a launch does."""
    opened: list[FolderStore] = []

    def open_store(*, load: bool = True, accept_edits: bool = False, **options: Any) -> FolderStore:
        for one in opened:
            one.release()
        store = FolderStore(folder, **options)
        opened.append(store)
        store.lock(wait_seconds=0)
        if load:
            store.load(accept_edits=accept_edits)
        return store

    yield open_store
    for one in opened:
        one.release()


# ---- every store


def test_the_lock_lets_one_in_and_says_who_it_is(again: Callable[[], Store]) -> None:
    first, second = again(), again()
    first.lock(wait_seconds=0)
    with pytest.raises(BusyError) as caught:
        second.lock(wait_seconds=0)
    assert caught.value.exit_code == 75
    assert "another runner has this" in caught.value.message
    if first.folder is not None:
        assert f"pid {os.getpid()}" in caught.value.message
    first.release()
    second.lock(wait_seconds=0)


def test_there_is_nothing_at_first(again: Callable[[], Store]) -> None:
    store = began(again())
    assert store.load().checkpoint is None
    assert keys(store) == []
    assert store.summaries() == []
    assert store.size() == 0


def test_records_are_read_back_in_any_order_and_by_the_next_launch(again: Callable[[], Store]) -> None:
    store = began(again())
    refs: list[int] = []
    for seq in range(1, 21):
        refs += store.commit(checkpoint(seq, total=20), [entry(f"k{seq}", {"n": seq}), entry(f"m{seq}", [seq])])
    assert refs == sorted(set(refs))
    for _ in range(2):
        found = list(store.scan())
        assert [ref for ref, _ in found] == refs
        assert [record["seq"] for _, record in found] == [seq for seq in range(1, 21) for _ in range(2)]
        shuffled = refs[::-3] + refs[::2]
        assert list(store.read(shuffled)) == [dict(found)[ref] for ref in shuffled]
        assert [record["output"] for record in store.read([refs[2], refs[1]])] == [{"n": 2}, [1]]
        store.release()
        store = again()
        store.lock(wait_seconds=0)
        loaded = store.load()
        assert loaded.checkpoint is not None and (loaded.checkpoint.seq, loaded.checkpoint.total) == (20, 20)
        assert loaded.finished is None


def test_a_ref_stays_when_the_records_move_to_the_journal(again: Callable[[], Store]) -> None:
    store = began(again())
    (ref,) = store.commit(checkpoint(1), [entry("first")])
    others = [store.commit(checkpoint(seq), [entry(f"k{seq}")])[0] for seq in range(2, 12)]
    store.commit(checkpoint(12), flush=True)
    assert [r["key"] for r in store.read([others[3], ref])] == ["k5", "first"]
    assert store.size() == store.size([ref, *others])


def test_a_seq_that_does_not_follow_is_refused_and_changes_nothing(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    for seq in (0, 1, 3):
        with pytest.raises(CheckpointError, match=f"seq {seq} does not follow the stored 1"):
            store.commit(checkpoint(seq), [entry("b")])
    assert keys(store) == ["a"]
    store.commit(checkpoint(2), [entry("c")])
    assert keys(store) == ["a", "c"]


def test_a_run_begins_with_seq_1(again: Callable[[], Store]) -> None:
    store = began(again())
    with pytest.raises(CheckpointError):
        store.commit(checkpoint(2))


def test_what_the_caller_does_to_a_checkpoint_later_is_not_committed(again: Callable[[], Store]) -> None:
    store = began(again())
    mine = checkpoint(1, context={"deaths": {"a": 1}})
    store.commit(mine)
    mine.context["launches"] = 7
    mine.context["deaths"]["a"] = 2
    store.release()
    store = again()
    store.lock(wait_seconds=0)
    found = store.load().checkpoint
    assert found is not None and found.context["launches"] == 1 and found.context["deaths"] == {"a": 1}
    found.context["launches"] = 9
    again_found = store.load().checkpoint
    assert again_found is not None and again_found.context["launches"] == 1


def test_finish_files_a_summary_and_clears_the_state(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.finish(summary(total=1))
    assert [one["total"] for one in store.summaries()] == [1]
    store.release()
    store = began(again())
    assert store.load().checkpoint is None
    assert keys(store) == []
    store.commit(checkpoint(1, run_id="20260505T000000-0"), [entry("b")])
    assert keys(store) == ["b"]


def test_the_next_run_may_begin_right_after_a_finish(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.finish(summary(status="abandoned"))
    store.commit(checkpoint(1, run_id="20260505T000000-0"), [entry("b")])
    assert keys(store) == ["b"]


def test_finishing_twice_files_one_summary(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.finish(summary())
    store.finish(summary())
    assert len(store.summaries()) == 1


def test_summaries_come_newest_first(again: Callable[[], Store]) -> None:
    store = began(again())
    for number in range(5):
        store.commit(checkpoint(1, run_id=f"2026050{number}T000000-0"))
        store.finish(summary(f"2026050{number}T000000-0", number=number))
    assert [one["number"] for one in store.summaries()] == [4, 3, 2, 1, 0]


def test_what_is_set_aside_is_no_longer_in_the_way(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.set_aside()
    assert store.load().checkpoint is None
    assert keys(store) == []
    store.commit(checkpoint(1))


def test_compaction_keeps_exactly_what_it_is_given(again: Callable[[], Store]) -> None:
    store = began(again())
    refs = [store.commit(checkpoint(seq), [entry(f"k{seq}", "y" * seq)])[0] for seq in range(1, 16)]
    kept = refs[1::3]
    before = list(store.read(kept))
    moved = store.compact(checkpoint(16), kept)
    assert list(store.read(moved)) == before
    assert list(store.read(moved[::-1])) == before[::-1]
    new = store.commit(checkpoint(17), [entry("new")])
    store.release()
    store = again()
    store.lock(wait_seconds=0)
    store.load()
    assert [record["key"] for record in store.read([*new, *moved])] == ["new", *(r["key"] for r in before)]
    assert keys(store) == [*(record["key"] for record in before), "new"]


def test_compaction_is_a_commit_with_a_seq_of_its_own(again: Callable[[], Store]) -> None:
    store = began(again())
    refs = store.commit(checkpoint(1), [entry("a")])
    with pytest.raises(CheckpointError):
        store.compact(checkpoint(1), refs)
    store.compact(checkpoint(2), refs)
    with pytest.raises(CheckpointError):
        store.commit(checkpoint(2))
    assert keys(store) == ["a"]


def test_clear_removes_everything_and_note_and_keep_are_beside_the_run(again: Callable[[], Store]) -> None:
    store = began(again())
    store.commit(checkpoint(1), [entry("a")])
    store.keep("job.json", [b"{", b"}"])
    store.note({"event": "launch"})
    assert keys(store) == ["a"]
    store.finish(summary())
    store.clear()
    store.release()
    store = began(again())
    assert store.summaries() == [] and store.load().checkpoint is None


def test_release_may_be_called_twice(again: Callable[[], Store]) -> None:
    store = began(again())
    store.release()
    store.release()
    again().lock(wait_seconds=0)


# ---- the folder: its form


def test_state_json_has_the_fields_of_the_design_in_their_order(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder()
    store.commit(
        checkpoint(1, total=3, done=[[0, 0]], running=[{"index": 1, "key": "b"}]), [entry("a", {"é": "\u2028"})]
    )
    text = (folder / "state.json").read_bytes()
    state = orjson.loads(text)
    assert " ".join(state) == (
        "version job run_id seq last_completed total counts done failed waiting running outputs journal context usage "
        "started_at updated_at check"
    )
    assert state["outputs"][0]["output"] == {"é": "\u2028"}
    assert state["journal"] == {"name": "journal-1.jsonl", "length": 0}
    # A field a line, for people; a record a line, as in the journal.
    assert [line.split(b'"')[1] for line in text.split(b"\n")[1:-2] if line.startswith(b'"')] == [
        name.encode() for name in state
    ]
    store.commit(checkpoint(2), flush=True)
    line = b"".join(line for line in text.split(b"\n") if line.startswith(b'{"crc"'))
    assert (folder / "journal-1.jsonl").read_bytes() == line + b"\n"


def test_outputs_move_to_the_journal_only_when_they_pass_the_limit(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1000)
    for seq in range(1, 60):
        store.commit(checkpoint(seq), [entry(f"k{seq}")])
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
    store.commit(checkpoint(1), [Entry(entry("a").fields, odd), Entry(entry("b").fields, b'{"a" : 1.0e2}')])
    store = open_folder()
    assert [r["output"] for _, r in store.scan()] == [{"a": 1.5, "b": [100.0, "é"]}, {"a": 100.0}]


def test_modes_are_for_the_owner_alone_and_git_ignores_all(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    before = os.umask(0)
    try:
        store = open_folder(redo_limit_bytes=1)
        store.commit(checkpoint(1), [entry("a")])
        store.keep("job.json", [b"{}"])
        store.note({"event": "launch"})
        store.commit(checkpoint(2), [entry("b")])
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
    tmp_path: Path, folder: Path, open_folder: Callable[..., FolderStore], name: str
) -> None:
    target = tmp_path / "target"
    if name:
        store = open_folder(redo_limit_bytes=1)
        store.commit(checkpoint(1), [entry("a")])
        if (folder / name).is_file():
            (folder / name).rename(target)
        else:
            target.mkdir()
        (folder / name).symlink_to(target)
        store.release()
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
    store.note({"event": "launch"})
    assert not (tmp_path / "elsewhere").exists()


# ---- the folder: what is not as it was written


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


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "state.json"
    state = orjson.loads(path.read_bytes())
    change(state)
    path.write_bytes(orjson.dumps(state, option=orjson.OPT_INDENT_2))


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


# ---- the folder: what a disk does


class FaultyDisk(Disk):
    """From the n-th call of an operation on, an error; it counts the fsyncs after the first error."""

    def __init__(self, operation: str, *, code: int = errno.EIO) -> None:
        self.operation = operation
        self.code = code
        self.left: int | None = None
        self.fsyncs_after = 0

    def arm(self, after: int) -> None:
        self.left = after

    def _step(self, operation: str) -> None:
        if self.left is not None and self.left < 0 and operation == "fsync":
            self.fsyncs_after += 1
        if self.left is None or operation != self.operation:
            return
        self.left -= 1
        if self.left < 0:
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._step("open")
        return super().open(path, flags, mode)

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        self._step("write")
        # A short write is continued.
        return super().write_some(fd, data[: max(1, len(data) // 2)], offset)

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        super().fsync(fd)

    def replace(self, source: str, target: str) -> None:
        self._step("replace")
        super().replace(source, target)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("operation", ["open", "write", "fsync", "replace"])
def test_after_a_commit_that_failed_nothing_more_is_committed(
    folder: Path, open_folder: Callable[..., FolderStore], operation: str, flush: bool
) -> None:
    for after in range(4):
        disk = FaultyDisk(operation)
        store = open_folder(disk=disk)
        loaded = store.load().checkpoint
        seq = loaded.seq if loaded else 0
        store.commit(checkpoint(seq + 1), [entry(f"{after}-before")])
        acknowledged = keys(store)
        disk.arm(after)
        try:
            store.commit(checkpoint(seq + 2), [entry(f"{after}-unknown")], flush=flush)
        except DiskError as error:
            assert error.exit_code == 74 and str(folder) in error.message
        else:
            continue  # so many calls were not made
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
            store.commit(checkpoint(2), [entry("a")])
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


class RecordingDisk(Disk):
    """The operations on names, and the fsyncs, in their order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._names: dict[int, str] = {}

    def _named(self, path: str) -> str:
        name = Path(path).name
        return "tmp" if name.endswith(".tmp") else name

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self._names[fd] = self._named(path)
        return fd

    def write_some(self, fd: int, data: memoryview, offset: int | None) -> int:
        self.calls.append(f"write {self._names.get(fd, 'folder')}")
        return super().write_some(fd, data, offset)

    def fsync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}") if Path("/proc/self/fd").exists() else ""
        self.calls.append(f"fsync {self._named(path)}")
        super().fsync(fd)

    def replace(self, source: str, target: str) -> None:
        self.calls.append(f"replace {self._named(target)}")
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self.calls.append(f"unlink {self._named(path)}")
        super().unlink(path)


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")


@needs_proc
def test_a_commit_is_one_file_fsync_and_one_folder_fsync_and_the_journal_comes_first(
    open_folder: Callable[..., FolderStore],
) -> None:
    disk = RecordingDisk()
    store = open_folder(disk=disk, redo_limit_bytes=300)
    disk.calls.clear()
    store.commit(checkpoint(1), [entry("a")])
    state = ["write tmp", "fsync tmp", "replace state.json", "fsync triage"]
    assert disk.calls == state
    disk.calls.clear()
    store.commit(checkpoint(2), [entry("b")])
    # The journal's entry in the folder, then its bytes; only then the state that counts on both.
    assert disk.calls == ["fsync triage", "write journal-1.jsonl", "fsync journal-1.jsonl", *state]


@needs_proc
def test_a_new_journal_is_on_disk_before_it_is_named_and_the_old_one_goes_last(
    open_folder: Callable[..., FolderStore],
) -> None:
    disk = RecordingDisk()
    store = open_folder(disk=disk, redo_limit_bytes=1)
    refs = store.commit(checkpoint(1), [entry("a")])
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
    store.commit(checkpoint(1), [entry("a")])
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
    store = open_folder()
    store.commit(checkpoint(1), [entry("a")], flush=True)
    state = (folder / "state.json").read_bytes()
    store.finish(summary(total=1))
    (folder / "state.json").write_bytes(state)
    store = open_folder(load=False)
    loaded = store.load()
    assert loaded.finished is not None and summary(total=1).items() <= loaded.finished.items()
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
    assert summary().items() <= filed.items()


def test_only_the_last_twenty_summaries_and_three_journals_are_kept(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder()
    for number in range(25):
        run_id = f"20260504T0000{number:02}-0"
        store.commit(checkpoint(1, run_id=run_id), [entry("a")], flush=True)
        store.finish(summary(run_id, number=number))
        store.prune()
    assert [one["number"] for one in store.summaries()] == list(range(24, 4, -1))
    assert sorted(path.name for path in (folder / "runs").glob("*.jsonl")) == [
        f"20260504T0000{number}-0.jsonl" for number in (22, 23, 24)
    ]


def test_pruning_removes_what_no_checkpoint_names(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [entry("a")], flush=True)
    stale = [".state.json.0123456789ab.tmp", "journal-9.jsonl", "items-1-a.spool"]
    for name in [*stale, "items-2-b.spool", "mine.txt"]:
        (folder / name).write_bytes(b"x")
    store = open_folder()
    assert {*stale} <= {path.name for path in folder.iterdir()}
    store.prune(keep=["items-2-b.spool"])
    left = {path.name for path in folder.iterdir()}
    assert left == {"lock", "state.json", "journal-1.jsonl", "items-2-b.spool", "mine.txt"}


def test_finishing_leaves_the_side_files_of_the_next_run(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1))
    store.keep("items-1-b.spool", [b"x"])
    store.finish(summary(status="abandoned"))
    assert (folder / "items-1-b.spool").exists()


def test_what_is_set_aside_is_kept_for_ever(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [entry("a")], flush=True)
    journal = (folder / "journal-1.jsonl").read_bytes()
    (folder / "state.json").write_bytes(b"damaged")
    name = store.set_aside()
    for number in range(5):
        store.commit(checkpoint(1, run_id=f"2026{number}"))
        store.finish(summary(f"2026{number}"))
        store.prune()
    assert (folder / "runs" / f"{name}.state").read_bytes() == b"damaged"
    assert (folder / "runs" / f"{name}.journal-1.jsonl").read_bytes() == journal


def test_a_lock_file_that_somebody_unlinked_does_not_give_two_holders_of_one_name(folder: Path) -> None:
    first, second, third = FolderStore(folder), FolderStore(folder), FolderStore(folder)
    first.lock(wait_seconds=0)
    (folder / "lock").unlink()
    second.lock(wait_seconds=0)
    with pytest.raises(BusyError):
        third.lock(wait_seconds=0)
    first.release()
    with pytest.raises(BusyError):
        third.lock(wait_seconds=0)
    second.release()
    assert (folder / "lock").exists()


def test_a_journal_larger_than_a_piece_is_read_whole(open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    sizes = [10, 700_000, 700_000, 3_000_000, 5, 1_048_576, 20]
    refs = [store.commit(checkpoint(n), [entry(f"k{n}", "z" * size)])[0] for n, size in enumerate(sizes, 1)]
    assert [len(record["output"]) for _, record in store.scan()] == sizes
    assert [len(record["output"]) for record in store.read(refs[::-1])] == sizes[::-1]
    moved = store.compact(checkpoint(len(sizes) + 1), refs[1:])
    assert [len(record["output"]) for record in store.read(moved)] == sizes[1:]


def test_the_log_of_launches_is_never_an_error(folder: Path, open_folder: Callable[..., FolderStore]) -> None:
    store = open_folder()
    (folder / "log.jsonl").mkdir()
    store.note({"event": "launch"})
    store.commit(checkpoint(1))


def test_the_state_of_a_finished_run_put_over_that_of_another_is_noticed_and_nothing_is_touched(
    folder: Path, open_folder: Callable[..., FolderStore]
) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [entry("a")])
    old = (folder / "state.json").read_bytes()
    store.finish({"run_id": checkpoint(1).run_id, "status": "finished"})
    second = checkpoint(1)
    second.run_id = f"{second.run_id}-2"
    store.commit(second, [entry("b")])
    (folder / "state.json").write_bytes(old)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    store.release()
    with pytest.raises(CheckpointError, match="is of a run that has finished"):
        FolderStore(folder).load()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"} == {
        path: text for path, text in before.items() if path.name != "lock"
    }

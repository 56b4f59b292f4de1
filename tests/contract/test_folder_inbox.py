"""The inbox of the folder store: what may lie there, and the journal of a run that is reopened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentrun.checkpoint.message import LIMIT_BYTES, AnyMessage, decode_message, encode_message
from agentrun.errors import CheckpointError, UsageError
from agentrun.store.folder.store import FolderStore
from agentrun.testing.examples import RUN, answer, checkpoint, edit, keys, record, redo, reopen, skip, summary

Open = Callable[..., FolderStore]


def as_json(message: AnyMessage, **changes: Any) -> dict[str, Any]:
    """The message as it lies in the folder, with fields changed or, where the value is ..., left out."""
    values = {**orjson.loads(encode_message(message)), **changes}
    return {name: value for name, value in values.items() if value is not ...}


def put(folder: Path, name: str, value: Any) -> Path:
    (folder / "inbox").mkdir(mode=0o700, exist_ok=True)
    path = folder / "inbox" / name
    path.write_bytes(value if isinstance(value, bytes) else orjson.dumps(value))
    return path


def test_messages_have_names_that_sort_by_time_and_are_for_the_owner_alone(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    before = time.time_ns()
    store.post([skip("a"), skip("b")])
    names = sorted(os.listdir(folder / "inbox"))
    assert [one.name for one in store.inbox()] == names
    assert all(before <= int(name[:20]) <= time.time_ns() + 2 for name in names)
    assert (folder / "inbox").stat().st_mode & 0o777 == 0o700
    assert {(folder / "inbox" / name).stat().st_mode & 0o777 for name in names} == {0o600}
    assert decode_message((folder / "inbox" / names[0]).read_bytes()) == skip("a")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 5000, "got `array`"),
        (encode_message(edit("a")).replace(b'"better"', b"[" * 5000 + b"]" * 5000), "nested too deep"),
        ([1], "got `array`"),
        (as_json(skip("a"), version=2), "version: "),
        (as_json(skip("a"), kind="dance"), "dance"),
        (as_json(skip("a"), gen=-1), "gen: "),
        (as_json(skip("a"), gen=True), "gen: "),
        (as_json(skip("a"), run_id="../x"), "run_id: "),
        (as_json(skip("a"), key=7), "key: "),
        (as_json(skip("a"), key="k" * 2000), "key: "),
        (as_json(skip("a"), reason=None), "reason: "),
        (as_json(redo("a"), now=...), "`now`"),
        (as_json(redo("a"), keep_before=3), "keep_before: "),
        (as_json(answer("a"), question=0), "question: "),
        (as_json(answer("a"), answer={"yes": "no", "text": "", "details": {}}), "answer.yes: "),
        (as_json(answer("a"), answer={"yes": True, "text": "", "details": []}), "answer.details: "),
        (as_json(edit("a"), carry=1), "one of them"),
        (as_json(edit("a"), output=...), "one of them"),
    ],
)
def test_what_is_not_a_message_is_named_and_kept_out_of_sight(
    folder: Path, open_folder: Open, content: Any, says: str
) -> None:
    store = open_folder()
    store.post([skip("good")])
    put(folder, "00000000000000000001-abcdef01.json", content)
    bad, good = store.inbox()
    assert (bad.message, good.message) == (None, skip("good"))
    assert says in bad.problem
    store.drop([bad.name])
    assert store.inbox() == [good]
    assert open_folder().inbox() == [good]
    assert (folder / "inbox" / f"{bad.name}.rejected").exists()


def test_links_pipes_folders_and_giants_are_not_messages(folder: Path, open_folder: Open, tmp_path: Path) -> None:
    store = open_folder()
    (tmp_path / "elsewhere.json").write_bytes(encode_message(skip("a")))
    big = put(folder, "1-big.json", b"")
    os.truncate(big, LIMIT_BYTES + 1)
    (folder / "inbox" / "2-link.json").symlink_to(tmp_path / "elsewhere.json")
    os.mkfifo(folder / "inbox" / "3-pipe.json")
    (folder / "inbox" / "4-folder.json").mkdir()
    put(folder, "notes.txt", b"not for us")
    put(folder, ".5-half.json.0123456789ab.tmp", b"{")
    found = store.inbox()
    assert [one.name for one in found] == ["1-big.json", "2-link.json", "3-pipe.json", "4-folder.json"]
    assert all(one.message is None and one.problem for one in found)
    store.drop([one.name for one in found])
    assert store.inbox() == []
    assert (tmp_path / "elsewhere.json").exists()


def test_drop_reaches_nothing_outside_the_inbox(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    store.commit(checkpoint(1))
    store.post([skip("a")])
    store.drop(["../state.json", "..", "", "/etc/passwd"])
    assert (folder / "state.json").exists() and len(store.inbox()) == 1


def test_an_inbox_that_is_a_link_or_open_to_others_is_refused(folder: Path, open_folder: Open, tmp_path: Path) -> None:
    store = open_folder()
    (tmp_path / "elsewhere").mkdir()
    (folder / "inbox").symlink_to(tmp_path / "elsewhere")
    for refused in (lambda: store.post([skip("a")]), open_folder):
        with pytest.raises(UsageError, match="is not a folder"):
            refused()
    (folder / "inbox").unlink()
    (folder / "inbox").mkdir()
    (folder / "inbox").chmod(0o777)
    for refused in (lambda: store.post([skip("a")]), open_folder):
        with pytest.raises(UsageError, match="written by others"):
            refused()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_nothing_is_posted_to_a_job_that_is_not_there(folder: Path) -> None:
    with pytest.raises(UsageError, match="no such job"):
        FolderStore(folder).post([skip("a")])
    assert not folder.exists()


def test_pruning_leaves_a_post_that_is_under_way_and_removes_one_that_died(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    young = put(folder, ".1-a.json.0123456789ab.tmp", b"{")
    old = put(folder, ".2-b.json.0123456789ab.tmp", b"{")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    store.commit(checkpoint(1))
    store.prune()
    assert young.exists() and not old.exists()


# ---- reopening


def ended(store: FolderStore) -> None:
    for seq in range(1, 6):
        store.commit(checkpoint(seq), [record(f"k{seq}")])
    store.finish(summary())


def test_a_reopened_run_has_a_journal_of_its_own_that_no_run_had_before(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    ended(store)
    filed = (folder / "runs" / f"{RUN}.jsonl").read_bytes()
    reopen(store)
    assert (folder / "journal-2.jsonl").read_bytes() == filed
    assert not (folder / "state.json").exists()
    store = open_folder()
    new = reopen(store)
    new.seq += 1
    store.commit(new)
    store.prune()
    assert [name for name in os.listdir(folder) if name.startswith("journal")] == ["journal-3.jsonl"]
    assert (folder / "runs" / f"{RUN}.jsonl").read_bytes() == filed


def test_what_follows_the_length_in_a_filed_journal_is_not_copied(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    ended(store)
    with (folder / "runs" / f"{RUN}.jsonl").open("ab") as file:
        file.write(b'{"crc":"torn')
    reopen(store)
    assert keys(store) == [f"k{n}" for n in range(1, 6)]


@pytest.mark.parametrize("how", ["flipped", "short"])
def test_a_damaged_journal_is_not_reopened(folder: Path, open_folder: Open, how: str) -> None:
    store = open_folder()
    ended(store)
    path = folder / "runs" / f"{RUN}.jsonl"
    text = bytearray(path.read_bytes())
    if how == "flipped":
        text[len(text) // 2] ^= 1
    else:
        del text[-10:]
    path.write_bytes(text)
    with pytest.raises(CheckpointError, match=r"--fresh"):
        reopen(store)
    assert bytes(text) == path.read_bytes()
    store = open_folder()
    store.commit(checkpoint(1, run_id="20260606T220311-0a2f19f3a1c"))


def test_over_an_unfinished_run_nothing_is_reopened(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    ended(store)
    store.commit(checkpoint(1, run_id="20260606T220311-0a2f19f3a1c"), [record("new")])
    state = (folder / "state.json").read_bytes()
    with pytest.raises(CheckpointError):
        reopen(store)
    assert (folder / "state.json").read_bytes() == state

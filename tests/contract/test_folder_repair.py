"""The folder store: a state that cannot be loaded is repaired from the records that are whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, Running
from agentrun.checkpoint.record import encode_record
from agentrun.errors import CheckpointError, UsageError
from agentrun.money.usage import Usage
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import FolderLease
from agentrun.store.memory import MemoryStore
from agentrun.store.salvage import Damage
from agentrun.testing.examples import LATER_RUN, RUN, checkpoint, context, end_run, keys, record, reopen, summary
from contract.bench import edit_state

Open = Callable[..., FolderStore]


@pytest.fixture
def ran(folder: Path, open_folder: Open) -> Path:
    """Six items done: a to d in journal-1.jsonl, e and f in state.json."""
    store = open_folder(redo_limit_bytes=1)
    for seq, key in enumerate("abcd", 1):
        store.commit(state_at(seq), [record(key, index=seq - 1)])
    store = open_folder()
    for seq, key in enumerate("ef", 5):
        store.commit(state_at(seq), [record(key, index=seq - 1)])
    return folder


def state_at(seq: int, **more: Any) -> Checkpoint:
    """With `seq` of nine items done."""
    counts = {"pending": 9 - seq, "done": seq}
    more = {"total": 9, "counts": counts, "done": [[0, seq - 1]], "context": context(launches=3, budget=1.5), **more}
    return checkpoint(seq, **more)


def repair(folder: Path) -> Damage:
    """As the command does; `open_folder` has the lock."""
    store = FolderStore(folder)
    salvage = store.salvage()
    damage = salvage.examine()
    salvage.rebuild()
    assert store.salvage().examine().problem == ""
    return damage


def done(open_folder: Open) -> str:
    """The keys of the records that a launch finds, in their order; it can commit."""
    store = open_folder(load=False)
    found = store.load().checkpoint
    assert found is not None
    said = "".join(keys(store))
    store.commit(structs.replace(found, seq=found.seq + 1), [record("z")])
    return said


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "lock"}


def test_a_whole_state_is_left_as_it_is(ran: Path) -> None:
    before = files_in(ran)
    damage = repair(ran)
    assert (damage.problem, damage.run_id, damage.records, damage.counts) == ("", RUN, 6, {"done": 6})
    assert files_in(ran) == before and not (ran / "runs").exists()


def test_without_a_state_json_the_journal_counts_and_no_launch_runs_over_it(
    ran: Path, open_folder: Open, leases: list[FolderLease]
) -> None:
    (ran / "state.json").unlink()
    journal = (ran / "journal-1.jsonl").read_bytes()
    noticed = r"missing, but journal-1\.jsonl holds records .* agentrun repair"
    with pytest.raises(CheckpointError, match=noticed):
        open_folder(load=False).load()
    # A runner may be about to write the first one.
    assert FolderStore(ran).reader().run_id == ""
    leases[-1].release()
    with pytest.raises(CheckpointError, match=noticed):
        FolderStore(ran).reader()
    damage = repair(ran)
    assert (damage.records, damage.counts, damage.found_in) == (4, {"done": 4}, ["journal-1.jsonl"])
    assert any("if only the newest state.json had them" in lost for lost in damage.lost)
    assert any("new idempotency keys" in unknown for unknown in damage.unknown)
    (aside,) = damage.aside
    assert (ran / aside).read_bytes() == journal
    assert done(open_folder) == "abcd"


def test_a_torn_state_json_gives_the_records_that_it_still_has(ran: Path, open_folder: Open) -> None:
    text = (ran / "state.json").read_bytes()
    (ran / "state.json").write_bytes(text[: text.index(b'"key":"f"')])
    damage = repair(ran)
    assert damage.problem.startswith("state.json is torn (it ends at byte ")
    assert (damage.run_id, damage.records, damage.counts) == (RUN, 5, {"done": 5})
    assert damage.found_in == ["journal-1.jsonl", "state.json"]
    assert "what the newest records said of 1 item (index 5); it is run again" in damage.lost
    assert done(open_folder) == "abcde"
    found = FolderStore(ran).load().checkpoint
    assert found is not None and (found.total, found.context.launches) == (9, 1)


def test_a_state_json_cut_anywhere_loses_only_what_is_cut_off(ran: Path, open_folder: Open) -> None:
    text = (ran / "state.json").read_bytes()
    saved = files_in(ran)
    for length in range(0, len(text), 37):
        for path in ran.glob("journal-*"):
            path.unlink()
        for name, content in saved.items():
            (ran / name).write_bytes(content)
        (ran / "state.json").write_bytes(text[:length])
        repair(ran)
        left = "".join(key for key in "ef" if encode_record_of(text, key) in text[:length])
        assert done(open_folder) == "abcd" + left, length


def encode_record_of(text: bytes, key: str) -> bytes:
    return next(line for line in text.split(b"\n") if b'"key":"%b"' % key.encode() in line and b'"crc"' in line)[:-1]


@pytest.mark.parametrize("text", [b"", b"[]", b"\0" * 500, b"not JSON"])
def test_a_state_json_that_says_nothing_is_as_one_that_is_missing(ran: Path, open_folder: Open, text: bytes) -> None:
    (ran / "state.json").write_bytes(text)
    assert repair(ran).records == 4
    assert done(open_folder) == "abcd"


def test_a_state_json_with_a_wrong_check_is_used_and_doubted(ran: Path, open_folder: Open) -> None:
    text = (ran / "state.json").read_bytes()
    (ran / "state.json").write_bytes(text.replace(b'"launches":3', b'"launches":4'))
    damage = repair(ran)
    assert (damage.records, damage.lost, damage.run_id) == (6, [], RUN)
    assert any("its check is wrong" in unknown for unknown in damage.unknown)
    found = FolderStore(ran).load().checkpoint
    assert found is not None and (found.context.launches, found.context.identity, found.seq) == (4, {}, 7)
    assert done(open_folder) == "abcdef"


def test_an_edited_record_is_not_whole_and_its_item_is_run_again(ran: Path, open_folder: Open) -> None:
    edit_state(ran, lambda state: state["outputs"][1].update(output="by hand"))
    damage = repair(ran)
    assert damage.counts == {"done": 4} and any("--accept-edits" in note for note in damage.notes)
    assert done(open_folder) == "abcd"


def test_a_newer_version_is_not_repaired(ran: Path) -> None:
    path = ran / "state.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    for cut in (None, 300):
        path.write_bytes(path.read_bytes()[:cut])
        before = files_in(ran)
        with pytest.raises(CheckpointError, match="version 2, from a newer agentrun"):
            repair(ran)
        assert files_in(ran) == before


def test_an_older_state_json_is_brought_up_to_its_journal(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(state_at(1, running=[Running(index=1, key="b")]), [record("a", usage=Usage(cost=0.5, requests=1))])
    old = (folder / "state.json").read_bytes()
    for seq, key in enumerate("bc", 2):
        store.commit(state_at(seq), [record(key, launch=seq, usage=Usage(cost=0.25, requests=1))])
    (folder / "state.json").write_bytes(old)
    damage = repair(folder)
    assert "older than journal-1.jsonl" in damage.problem
    assert (damage.run_id, damage.counts) == (RUN, {"done": 3})
    assert any("what crashed attempts cost" in unknown for unknown in damage.unknown)
    found = FolderStore(folder).load().checkpoint
    assert found is not None and found.seq > 3
    assert (found.running, found.usage.cost, found.usage.dearest, found.context.launches) == ([], 1.0, 0.5, 3)
    assert done(open_folder) == "abc"


def test_a_journal_that_is_too_short_says_which_items_are_run_again(ran: Path, open_folder: Open) -> None:
    path = ran / "journal-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    damage = repair(ran)
    assert "what the newest records said of 2 items (index 2, 3); they are run again" in damage.lost
    assert any(f"the last {sum(map(len, lines[2:]))} bytes of journal-1.jsonl" in lost for lost in damage.lost)
    assert done(open_folder) == "abef"


def test_a_missing_journal_leaves_what_state_json_has(ran: Path, open_folder: Open) -> None:
    (ran / "journal-1.jsonl").unlink()
    damage = repair(ran)
    assert "journal-1.jsonl, which is missing" in damage.lost
    assert done(open_folder) == "ef"
    # It may come back.
    assert (ran / "journal-2.jsonl").exists()


def test_a_damaged_record_in_the_middle_costs_its_own_item_only(ran: Path, open_folder: Open) -> None:
    path = ran / "journal-1.jsonl"
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"key":"b"', b'"key":"B"'))
    damage = repair(ran)
    assert damage.problem.startswith("journal-1.jsonl: the record at byte")
    assert any("1 damaged record in journal-1.jsonl (byte" in lost for lost in damage.lost)
    assert "what the newest records said of 1 item (index 1); it is run again" in damage.lost
    assert done(open_folder) == "acdef"


def test_an_older_record_does_not_count_where_a_newer_one_is_damaged(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [record("a", "old"), record("b")])
    store.commit(checkpoint(2), [record("a", kind="redo", gen=1)])
    store.commit(checkpoint(3), [record("a", "new", gen=1)])
    path = folder / "journal-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[2].replace(b'"gen":1', b'"gen":2') + lines[3].replace(b"new", b"NEW"))
    damage = repair(folder)
    assert damage.counts == {"done": 1}
    assert done(open_folder) == "b"


def test_two_journals_of_one_run_are_joined_and_each_record_counts_once(ran: Path, open_folder: Open) -> None:
    """A compaction that died leaves the new journal beside the old one."""
    lines = (ran / "journal-1.jsonl").read_bytes().splitlines(keepends=True)
    (ran / "journal-2.jsonl").write_bytes(lines[1] + lines[3] + lines[2][:20])
    (ran / "state.json").unlink()
    damage = repair(ran)
    assert damage.found_in == ["journal-1.jsonl", "journal-2.jsonl"] and len(damage.aside) == 2
    assert done(open_folder) == "abcd"
    assert [path.name for path in ran.glob("journal-*")] == ["journal-3.jsonl"]


def test_the_journal_of_another_run_is_put_aside_and_not_mixed_in(ran: Path, open_folder: Open) -> None:
    (ran / "journal-7.jsonl").write_bytes(encode_record(record("other", seq=2, at=99.0)) + b"\n")
    (ran / "state.json").unlink()
    damage = repair(ran)
    assert any("journal-1.jsonl is of another run" in note for note in damage.notes)
    assert (damage.found_in, len(damage.aside)) == (["journal-7.jsonl"], 2)
    assert done(open_folder) == "other"


def test_the_copy_of_a_finished_run_is_nothing_to_repair(folder: Path, open_folder: Open) -> None:
    """A launch that was about to open a finished run again, and died."""
    store = open_folder()
    end_run(store)
    reopen(store)
    assert (folder / "journal-2.jsonl").exists()
    damage = repair(folder)
    assert (damage.problem, damage.run_id) == ("", "")
    assert open_folder(load=False).load().checkpoint is None


def test_the_state_of_a_finished_run_over_a_newer_ones_is_not_its_own(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=1)
    store.commit(checkpoint(1), [record("old")])
    old = (folder / "state.json").read_bytes()
    store.finish(summary())
    store.commit(checkpoint(1, run_id=LATER_RUN), [record("new")])
    (folder / "state.json").write_bytes(old)
    damage = repair(folder)
    assert "belongs to a run that has finished" in damage.problem and damage.run_id not in ("", RUN)
    assert done(open_folder) == "new"


def test_a_torn_state_of_a_finished_run_is_cleared(folder: Path, open_folder: Open) -> None:
    store = open_folder()
    store.commit(checkpoint(1), [record("a")])
    text = (folder / "state.json").read_bytes()
    store.finish(summary())
    (folder / "state.json").write_bytes(text[:-9])
    damage = repair(folder)
    assert damage.problem and damage.run_id == ""
    assert not (folder / "state.json").exists() and (folder / damage.aside[0]).read_bytes() == text[:-9]
    assert open_folder().summaries()[0].run_id == RUN


def test_without_a_whole_record_nothing_is_written(ran: Path) -> None:
    (ran / "journal-1.jsonl").unlink()
    (ran / "state.json").write_bytes(b"{")
    before = files_in(ran)
    with pytest.raises(CheckpointError, match=r"not one whole record is left; .* --fresh"):
        repair(ran)
    assert files_in(ran) == before


def test_a_record_with_another_meaning_is_not_dropped(ran: Path) -> None:
    """Its check is right, so a newer agentrun wrote it."""
    line = encode_record(record("x", seq=9)).replace(b'"kind":"done"', b'"kind":"cite"')
    from zlib import crc32

    body = line[18:]
    with (ran / "journal-1.jsonl").open("ab") as file:
        file.write(b'{"crc":"%08x",' % crc32(body) + body + b"\n")
    (ran / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read it .* use the agentrun that wrote it"):
        repair(ran)


def test_a_message_taken_in_twice_is_on_record_once(ran: Path, open_folder: Open) -> None:
    """A launch died before its commit, and the next one took the message in again."""
    stale, live = (record("a", kind="redo", gen=1, id="0" * 16, seq=seq, at=seq) for seq in (7, 9))
    with (ran / "journal-1.jsonl").open("ab") as file:
        file.write(encode_record(stale) + b"\n" + encode_record(live) + b"\n")
    (ran / "state.json").unlink()
    repair(ran)
    assert done(open_folder) == "abcda"


def test_a_state_json_from_before_a_compaction_is_joined_to_what_the_log_says(folder: Path, open_folder: Open) -> None:
    store = open_folder(redo_limit_bytes=300)
    refs = store.commit(checkpoint(1), [record("a"), record("b")])
    store.commit(checkpoint(2), [record("c")])
    old = (folder / "state.json").read_bytes()
    store.compact(checkpoint(3), refs[:1])
    (folder / "state.json").write_bytes(old)
    assert b'"key":"c"' in old and b'"key":"a"' not in old
    saved = files_in(folder)
    assert repair(folder).found_in == ["journal-2.jsonl"]
    assert done(open_folder) == "a"
    for name, content in saved.items():
        (folder / name).write_bytes(content)
    (folder / "journal-3.jsonl").unlink()
    (folder / "log.jsonl").write_bytes(orjson.dumps({"event": "launch", "launch": 1, "run_id": RUN}) + b"\n")
    assert repair(folder).found_in == ["journal-2.jsonl", "state.json"]
    assert done(open_folder) == "ac"


def test_the_run_keeps_its_id_where_only_the_log_knows_it(ran: Path) -> None:
    (ran / "log.jsonl").write_bytes(orjson.dumps({"event": "launch", "launch": 1, "run_id": RUN}) + b"\n")
    (ran / "state.json").unlink()
    damage = repair(ran)
    assert damage.run_id == RUN and any(f"log.jsonl says {RUN}" in unknown for unknown in damage.unknown)


def test_what_fresh_has_put_aside_is_mentioned(ran: Path, open_folder: Open) -> None:
    (ran / "state.json").write_bytes(b"{")
    store = open_folder(load=False)
    name = store.set_aside()
    assert repair(ran).notes == [f"{name} was put aside by --fresh, and is left as it is"]


def test_a_store_that_cannot_be_repaired_says_so() -> None:
    with pytest.raises(UsageError, match="repair works on the folder store only"):
        MemoryStore().salvage()

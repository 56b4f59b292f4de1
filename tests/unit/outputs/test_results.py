from __future__ import annotations

import errno
from array import array
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import structs

from agentrun.checkpoint.checkpoint import Checkpoint, RunContext
from agentrun.checkpoint.ledger import Ledger
from agentrun.checkpoint.record import Kind, PublishedFile
from agentrun.checkpoint.summary import Summary
from agentrun.errors import DiskError, JobError
from agentrun.item import key_digest
from agentrun.outputs.results import check_output, result_line, result_lines, write_results
from agentrun.store.memory import MemoryStore
from agentrun.system.disk import Disk
from unit.records import make_record


def settled(*kinds: Kind) -> tuple[Ledger, MemoryStore]:
    """Items k0, k1, … settled in the reverse of their order."""
    ledger, store = Ledger(), MemoryStore()
    ledger.set_order(array("I", [ledger.row_of(key_digest(f"k{n}")) for n in range(len(kinds))]))
    store.lock()
    store.load()
    for seq, index in enumerate(reversed(range(len(kinds))), 1):
        output = {"output": {"n": index}} if kinds[index] == "done" else {}
        record = make_record(f"k{index}", kinds[index], index=index, **output)
        checkpoint = Checkpoint(job="j", run_id="1", seq=seq, context=RunContext(launches=1, date="2026-05-04"))
        (ref,) = store.commit(checkpoint, [record])
        ledger.settle(ledger.order[index], ref, record)
    return ledger, store


def test_a_line_has_index_key_and_output_in_that_order_and_nothing_else() -> None:
    record = make_record("docs/é.txt", output={"z": 1, "a": 2}, seq=9, at=1.5, launch=3)
    assert result_line(4, record) == '{"index":4,"key":"docs/é.txt","output":{"z":1,"a":2}}\n'.encode()


def test_files_stand_behind_the_output_where_there_are_some() -> None:
    line = orjson.loads(result_line(0, make_record("k", output=1, files=[PublishedFile("r.files/k/a", 1, "x")])))
    assert list(line) == ["index", "key", "output", "files"]
    assert line["files"] == [{"path": "r.files/k/a", "size": 1, "sha256": "x"}]
    assert b"files" not in result_line(0, make_record("k", output=1))


def test_done_items_are_written_in_item_order(tmp_path: Path) -> None:
    ledger, store = settled("done", "failed", "done", "skipped", "done")
    written = write_results(result_lines(ledger, store), tmp_path / "out.jsonl", Disk())
    lines = [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert lines == [{"index": n, "key": f"k{n}", "output": {"n": n}} for n in (0, 2, 4)]
    assert written.bytes == (tmp_path / "out.jsonl").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


class FailingDisk(Disk):
    def __init__(self, operation: str) -> None:
        self.operation = operation

    def fsync(self, fd: int) -> None:
        if self.operation == "fsync":
            raise OSError(errno.ENOSPC, "full")
        super().fsync(fd)

    def replace(self, source: str, target: str) -> None:
        if self.operation == "replace":
            raise OSError(errno.EIO, "io")
        super().replace(source, target)


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_results_are_written_wholly_or_not_at_all(tmp_path: Path, operation: str) -> None:
    ledger, store = settled("done", "done")
    (tmp_path / "out.jsonl").write_text("the old ones")
    with pytest.raises(DiskError, match=r"out\.jsonl") as caught:
        write_results(result_lines(ledger, store), tmp_path / "out.jsonl", FailingDisk(operation))
    assert caught.value.exit_code == 74
    assert (tmp_path / "out.jsonl").read_text() == "the old ones"
    assert len(list(tmp_path.iterdir())) == 1


def ended(path: Path, /, **changed: Any) -> Summary:
    ledger, store = settled("done")
    return Summary(
        run_id="1", output=structs.replace(write_results(result_lines(ledger, store), path, Disk()), **changed)
    )


def test_an_output_is_ours_when_a_summary_names_these_very_bytes(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    check_output(path, ended=[], overwrite=False)
    summary = ended(path)
    check_output(path, ended=[Summary(run_id="2"), summary], overwrite=False)
    for other in ([], [ended(path, path="elsewhere")], [ended(path, sha256="0")], [ended(path, bytes=1)]):
        with pytest.raises(JobError, match="no run of this job wrote it"):
            check_output(path, ended=other, overwrite=False)
        check_output(path, ended=other, overwrite=True)


def test_where_results_cannot_go_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="/file is not a folder; choose another output with -o"):
        check_output(tmp_path / "file" / "out.jsonl", ended=[], overwrite=True)
    with pytest.raises(JobError, match="is a folder"):
        check_output(tmp_path, ended=[], overwrite=True)


def test_a_folder_of_files_that_no_run_of_this_job_made_is_left_alone(tmp_path: Path) -> None:
    path, home = tmp_path / "out.jsonl", tmp_path / "out.files"
    home.mkdir()
    check_output(path, ended=[], overwrite=False, is_first_launch=True)
    (home / "precious").write_text("")
    with pytest.raises(JobError, match=r"out\.files: already exists, and no run of this job made it"):
        check_output(path, ended=[], overwrite=False, is_first_launch=True)
    check_output(path, ended=[], overwrite=True, is_first_launch=True)
    check_output(path, ended=[Summary(run_id="1")], overwrite=False, is_first_launch=True)
    check_output(path, ended=[], overwrite=False)


def test_what_is_in_the_way_of_the_items_files_is_told_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "out.files").symlink_to(tmp_path)
    with pytest.raises(JobError, match=r"out\.files: must be a folder for the items' files"):
        check_output(tmp_path / "out.jsonl", ended=[], overwrite=True)


def test_a_folder_that_cannot_be_written_is_told(ordinary_folder: Path) -> None:
    ordinary_folder.chmod(0o500)
    with pytest.raises(JobError, match="cannot be written"):
        check_output(ordinary_folder / "out.jsonl", ended=[], overwrite=False)

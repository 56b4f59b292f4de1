"""The results, in item order, without anything that differs from one run to the next."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson

from agentrun.checkpoint.ledger import DONE, Ledger
from agentrun.checkpoint.record import Record
from agentrun.checkpoint.summary import Summary, WrittenOutput
from agentrun.errors import JobError
from agentrun.outputs.files import files_folder
from agentrun.outputs.place import check_output_folder
from agentrun.store.port import Reader, Store
from agentrun.system.disk import PIECE_BYTES, Disk, disk_error, replace_file
from agentrun.system.trust import check_folder


class Result(NamedTuple):
    """The result of one item, at its position now."""

    position: int
    record: Record


Results = Callable[[], Iterator[Result]]
"""A pass over the results, in item order; each call is another pass, so that they need not be held in memory."""


def result_line(index: int, record: Record) -> bytes:
    """A line of the results. The output is as it was recorded, not taken apart and put together again."""
    listed = [one.as_result for one in record.files]
    files = b',"files":' + msgspec.json.encode(listed) if listed else b""
    return b'{"index":%d,"key":%b,"output":%b%b}\n' % (index, orjson.dumps(record.key), bytes(record.output), files)


def done_results(ledger: Ledger, store: Store | Reader) -> Iterator[Result]:
    """The done items at their positions now, in item order."""
    done = array("I", (index for index, row in enumerate(ledger.order) if ledger.states[row] == DONE))
    records = store.read(ledger.refs[ledger.order[index]] for index in done)
    for index, record in zip(done, records, strict=True):
        yield Result(index, record)


def json_lines(results: Results) -> Iterator[bytes]:
    """The results as JSON lines."""
    for index, record in results():
        yield result_line(index, record)


def result_lines(ledger: Ledger, store: Store | Reader) -> Iterator[bytes]:
    """The done items as JSON lines."""
    return json_lines(lambda: done_results(ledger, store))


def write_results(
    lines: Iterable[bytes], path: Path, disk: Disk, check: Callable[[], None] = lambda: None
) -> WrittenOutput:
    """Write these lines to `path`, wholly or not at all; return what was written, to recognise it later.

    Nothing is replaced if `check`, right before that, raises.
    """
    digest = hashlib.sha256()
    written = 0

    def pieces() -> Iterator[bytes]:
        nonlocal written
        for piece in _gather(lines):
            digest.update(piece)
            written += len(piece)
            yield piece

    try:
        replace_file(disk, path, pieces(), mode=0o644, check=check)
    except OSError as error:
        # About the output: the error itself names its temporary file.
        raise disk_error(path, error) from error
    return WrittenOutput(str(path), written, digest.hexdigest())


def _gather(lines: Iterable[bytes]) -> Iterator[bytes]:
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def check_output(path: Path, *, ended: Sequence[Summary], overwrite: bool, is_first_launch: bool = False) -> None:
    """Told before the first item runs, not after the last: can the results be written here, and may they?

    Before a run's first launch it has no files of its own: existing ones must be an earlier run's.
    """
    if path.is_dir():
        raise JobError(f"{path}: is a folder; name a file with -o")
    check_output_folder(path.parent, path)
    if path.exists() and not overwrite and not _is_ours(path, ended):
        raise JobError(
            f"{path}: already exists, and no run of this job wrote it; "
            f"choose another output with -o, or add --overwrite"
        )
    _check_files(files_folder(path), is_foreign=is_first_launch and not ended and not overwrite)


def check_folder_place(path: Path, *, is_foreign: bool) -> None:
    """The same of a folder in which each item has a file; whose those are is the folder's to say."""
    if os.path.lexists(path) and not path.is_dir():
        raise JobError(f"{path}: is not a folder, but each item's file goes there; move it away, or use -o")
    check_output_folder(path, path)
    _check_files(files_folder(path), is_foreign=is_foreign)


def _check_files(home: Path, *, is_foreign: bool) -> None:
    """Check the folder where items' files are published: existing ones of the same name would be replaced."""
    if not os.path.lexists(home):
        return
    if home.is_symlink() or not home.is_dir():
        raise JobError(
            f"{home}: must be a folder for the items' files, but is not; move it away, or choose another output with -o"
        )
    check_folder(home, otherwise="choose another output with -o")
    if is_foreign and any(home.iterdir()):
        raise JobError(
            f"{home}: already exists, and no run of this job made it; items' files would go there: "
            f"choose another output with -o, or add --overwrite"
        )


def _is_ours(path: Path, ended: Sequence[Summary]) -> bool:
    size = path.stat().st_size
    outputs = [summary.output for summary in ended if summary.output is not None]
    candidates = [output for output in outputs if (output.path, output.bytes) == (str(path), size)]
    if not candidates:
        return False
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return any(output.sha256 == found for output in candidates)

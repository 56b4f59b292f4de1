"""The results, in item order, without anything that differs from one run to the next."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from pathlib import Path
from shlex import quote
from typing import Any

import orjson

from agentrun.checkpoint.ledger import DONE, Ledger
from agentrun.checkpoint.record import result_of
from agentrun.errors import JobError
from agentrun.outputs.files import files_folder
from agentrun.store.port import Store
from agentrun.system.disk import PIECE_BYTES, Disk, disk_error, replace_file


def result_line(index: int, record: Mapping[str, Any]) -> bytes:
    line = {"index": index, "key": record["key"], "output": record["output"]}
    if files := record.get("files"):
        line["files"] = files
    return orjson.dumps(line) + b"\n"


def _result_lines(ledger: Ledger, store: Store) -> Iterator[bytes]:
    """The lines of the done items at their current positions, in item order."""
    order, refs = ledger.order, ledger.refs
    is_done = bytes(map(DONE.__eq__, map(ledger.states.__getitem__, order)))
    records = store.lines(map(refs.__getitem__, compress(order, is_done)))
    for index, record in zip(compress(count(), is_done), records, strict=True):
        found = result_of(record)
        if found is None:
            yield result_line(index, orjson.loads(record))
        else:
            # Copied as written: outputs are not decoded and encoded again for each of a million lines.
            key, output = found
            yield b'{"index":%d,"key":%b,"output":%b}\n' % (index, key, output)


def write_results(ledger: Ledger, store: Store, path: Path, disk: Disk) -> dict[str, Any]:
    """Write all results to `path`, atomically; return path, size and hash, to recognise the file later."""
    digest = hashlib.sha256()
    written = 0

    def pieces() -> Iterator[bytes]:
        nonlocal written
        for piece in _gather(_result_lines(ledger, store)):
            digest.update(piece)
            written += len(piece)
            yield piece

    try:
        replace_file(disk, path, pieces(), mode=0o644)
    except OSError as error:
        # About the output: the error itself names its temporary file.
        raise disk_error(path, error) from error
    return {"path": str(path), "bytes": written, "sha256": digest.hexdigest()}


def _gather(lines: Iterable[bytes]) -> Iterator[bytes]:
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def check_output(
    path: Path, *, ended: Sequence[Mapping[str, Any]], overwrite: bool, is_first_launch: bool = False
) -> None:
    """Check, before the first item runs, that the results can and may be written here.

    Before a run's first launch it has no files of its own: existing ones must be an earlier run's.
    """
    folder = path.parent
    if not folder.is_dir():
        raise JobError(f"{path}: the folder {folder} does not exist; make it with: mkdir -p {quote(str(folder))}")
    if path.is_dir():
        raise JobError(f"{path}: is a folder; name a file with -o")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise JobError(f"{path}: the folder {folder} cannot be written; choose another output with -o")
    if path.exists() and not overwrite and not _is_ours(path, ended):
        raise JobError(
            f"{path}: already exists, and no run of this job wrote it; "
            f"choose another output with -o, or add --overwrite"
        )
    _check_files(files_folder(path), is_foreign=is_first_launch and not ended and not overwrite)


def _check_files(home: Path, *, is_foreign: bool) -> None:
    """Check the folder where items' files are published: existing ones of the same name would be replaced."""
    if not os.path.lexists(home):
        return
    if home.is_symlink() or not home.is_dir():
        raise JobError(
            f"{home}: must be a folder for the items' files, but is not; move it away, or choose another output with -o"
        )
    if is_foreign and any(home.iterdir()):
        raise JobError(
            f"{home}: already exists, and no run of this job made it; items' files would go there: "
            f"choose another output with -o, or add --overwrite"
        )


def _is_ours(path: Path, ended: Sequence[Mapping[str, Any]]) -> bool:
    size = path.stat().st_size
    candidates = [
        output
        for summary in ended
        if isinstance(output := summary.get("output"), dict)
        and output.get("path") == str(path)
        and output.get("bytes") == size
    ]
    if not candidates:
        return False
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return any(output.get("sha256") == found for output in candidates)

"""What can still be read of a damaged folder: the whole records of each file, and the fields of a state.json.

A record is whole if the check that it carries is right; whatever is around it does not matter. Only lines are looked
at: an output may contain what looks like a record, and an agent may have taken it from anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from agentrun.checkpoint.record import Record, RecordError, check_record, decode_record
from agentrun.errors import CheckpointError
from agentrun.store.folder.journal import JournalLines
from agentrun.store.folder.runs import Runs

_FIELD = re.compile(rb'^"([a-z_]+)": (.+?),?$', re.MULTILINE)
_OUTPUTS = b'\n"outputs": [\n'
_KEY = re.compile(rb'"key":("(?:[^"\\]|\\.)*")')
_SEQ = re.compile(rb'"seq":(\d{1,18}),')


@dataclass(frozen=True, slots=True)
class Lost:
    """A record that is not whole: where it begins, and which item and commit it is of, as far as that can be read."""

    at: int
    key: str = ""
    seq: int | None = None
    after: int = 0
    """The commit of the whole record before it in the file: it is not older."""


@dataclass(slots=True, eq=False)
class Fragments:
    """One file's records. `whole` has, by what identifies a record, its commit and its place."""

    path: Path
    text: bytes | None = None
    """Of a state.json, which may be replaced; a journal is read again."""
    whole: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    newest_seq: int = 0
    run: int = 0
    """The number of the run that made the newest of them; 0 if the records do not say so."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def size(self) -> int:
        return len(self.text) if self.text is not None else os.stat(self.path).st_size

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], bytes]]:
        """Gives the line of the record at a place."""
        if (text := self.text) is not None:
            yield lambda at: text[at : end if (end := text.find(b"\n", at)) >= 0 else None].removesuffix(b",")
            return
        with JournalLines(self.path) as lines:
            yield lines.at

    def add(self, at: int, line: bytes) -> None:
        """Note a line that is, or was, a record."""
        if not check_record(line):
            self.lost.append(_lost(at, line, self.newest_seq))
            return
        record = _decode(line, f"{self.path}: the record at byte {at}")
        self.whole[identity(record)] = (record.seq, at)
        if record.seq >= self.newest_seq:
            self.newest_seq, self.run = record.seq, record.run


def identity(record: Record) -> bytes:
    """The same for two copies of a record, and for nothing else; also across runs, whose commits are numbered alike.

    What became of a message is known by the message: a launch that died may have written it, and the next one again.
    """
    what = [record.key, record.gen, record.kind, record.name, record.n]
    when = [record.id] if record.id else [record.seq, record.launch, record.at]
    return blake2b(msgspec.json.encode(what + when), digest_size=16).digest()


def _decode(line: bytes, where: str) -> Record:
    """A record whose check is right: if it cannot be read all the same, it is not damaged."""
    try:
        return decode_record(line)
    except RecordError as error:
        raise CheckpointError(
            f"{where} is whole, but this agentrun cannot read it ({error}); use the agentrun that wrote it"
        ) from None


def _lost(at: int, line: bytes, after: int) -> Lost:
    key, seq = _KEY.search(line), _SEQ.search(line)
    try:
        name = str(orjson.loads(key[1])) if key else ""
    except orjson.JSONDecodeError:
        name = ""
    return Lost(at, name, int(seq[1]) if seq else None, after)


def read_journal(path: Path, *, length: int | None = None) -> Fragments:
    """The records of a journal. What is behind its `length` counts if it is whole, and is no loss if it is not."""
    found = Fragments(path)
    with JournalLines(path) as lines:
        for at, line in _lines(lines):
            if check_record(line) or (line and (length is None or at < length)):
                found.add(at, line)
    return found


def _lines(lines: JournalLines) -> Iterator[tuple[int, bytes]]:
    """All lines, the last one also without its newline."""
    end = 0
    for at, line in lines.after(0):
        yield at, line
        end = at + len(line) + 1
    yield end, lines.at(end)


def filed_records(runs: Runs) -> tuple[set[int], set[bytes]]:
    """The numbers of the runs that ended, and what identifies the records that are kept of them."""
    ended = runs.summaries()
    kept = (read_journal(runs.journal(one.run_id)) for one in ended if runs.journal(one.run_id).exists())
    return {one.number for one in ended if one.number}, {one for filed in kept for one in filed.whole}


def is_of_open_run(path: Path, ended: set[int], filed: set[bytes]) -> bool:
    """Whether a journal has a record that is not kept of an ended run: otherwise it is no more than a copy, which a
    launch made to open the next run before it died. What such a launch writes itself is of no launch yet."""
    with JournalLines(path) as lines:
        for at, line in _lines(lines):
            if check_record(line):
                record = _decode(line, f"{path}: the record at byte {at}")
                if record.launch and record.run not in ended and identity(record) not in filed:
                    return True
    return False


# ---- state.json


def is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def read_fields(text: bytes) -> dict[str, Any]:
    """The fields of a state.json, of a torn one those that are whole: each is a line of its own."""
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError:
        values = {}
        for name, value in _FIELD.findall(text):
            try:
                values[name.decode()] = orjson.loads(value)
            except orjson.JSONDecodeError:
                continue
    return values if isinstance(values, dict) else {}


def read_outputs(path: Path, text: bytes, values: dict[str, Any]) -> Fragments:
    """The records in the `outputs` of a state.json, whose fields are `values`."""
    found = Fragments(path, text)
    starts = text.find(_OUTPUTS) + len(_OUTPUTS) if _OUTPUTS in text else len(text)
    at, is_inside = 0, False
    for line in text.split(b"\n"):
        is_inside = at >= starts and (is_inside or at == starts) and line[:1] != b"]"
        entry = line.removesuffix(b",")
        if check_record(entry) or (is_inside and entry):
            found.add(at, entry)
        at += len(line) + 1
    edited = values.get("outputs")
    if isinstance(edited, list) and len(edited) > len(found.whole) + len(found.lost):
        # Written anew by an editor, in another form.
        found.lost += [_edited(one) for one in edited]
    return found


def _edited(values: Any) -> Lost:
    known = values if isinstance(values, dict) else {}
    seq = known.get("seq")
    return Lost(0, str(known.get("key", "")), seq if isinstance(seq, int) else None)


def fitting(struct: type[msgspec.Struct], values: Any) -> dict[str, Any]:
    """The fields of a struct among `values` that are of their type."""
    found: dict[str, Any] = {}
    for one in msgspec.structs.fields(struct):
        if isinstance(values, dict) and one.name in values:
            try:
                found[one.name] = msgspec.convert(values[one.name], one.type)
            except msgspec.ValidationError:
                continue
    return found


def of_one_run(start: Fragments, others: Sequence[Fragments], named: Collection[str]) -> list[Fragments]:
    """`start` and those of the others that belong to it: by a record that both have, by the run that their newest
    record is of, or state.json by the journals that are `named` as its own."""
    chosen, left = [start], list(others)
    while joined := [one for one in left if any(_are_of_one_run(one, other, named) for other in chosen)]:
        chosen += joined
        left = [one for one in left if one not in joined]
    return chosen


def _are_of_one_run(one: Fragments, other: Fragments, named: Collection[str]) -> bool:
    is_named = (one.text is None) != (other.text is None) and (one.name in named or other.name in named)
    is_same_run = one.run != 0 and one.run == other.run
    return is_named or is_same_run or not one.whole.keys().isdisjoint(other.whole)


class Placed(NamedTuple):
    """A whole record: its commit, its number among all that were found, and where it is."""

    seq: int
    number: int
    file: Fragments
    at: int


def in_order(files: Iterable[Fragments]) -> list[Placed]:
    """The records of these files, each once, in the order of their commits.

    Where a record is in several files, the later one's counts: state.json is written after the journal.
    """
    newest: dict[bytes, Placed] = {}
    numbers = count()
    for file in files:
        for name, (seq, at) in file.whole.items():
            before = newest.get(name)
            if before is None or before.seq <= seq:
                number = before.number if before is not None and before.seq == seq else next(numbers)
                newest[name] = Placed(seq, number, file, at)
    return sorted(newest.values(), key=lambda one: one[:2])


def read_lines(placed: Iterable[Placed]) -> Iterator[tuple[Placed, bytes]]:
    """These records with their lines."""
    with ExitStack() as stack:
        line: dict[Fragments, Callable[[int], bytes]] = {}
        for one in placed:
            if one.file not in line:
                line[one.file] = stack.enter_context(one.file.reading())
            yield one, line[one.file](one.at)

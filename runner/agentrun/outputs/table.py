"""Results as CSV: a row an item, a column for each field of the outputs.

UTF-8, commas, lines that end in a newline, and quotes where a cell needs them. Columns are `index`, `key`, the fields
of all outputs in the order in which they first appear, then `output` for outputs that are not objects, and `files` for
items that left some; the last two only where they are needed. A field that has the name of one of these gets
`output.` in front of it.

Text is written as it is, numbers and booleans as in JSON, null and a missing field as an empty cell, lists and objects
as JSON. Text that a spreadsheet could take for a formula, because it begins with one of = + - @, a tab or a carriage
return, gets an apostrophe in front; so does text that begins with apostrophes and one of these. So no cell but a number
begins with one of them, and dropping that one apostrophe gives the text back.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Raw

from agentrun.checkpoint.record import PublishedFile, Record
from agentrun.outputs.results import Result, Results

COLUMNS_MOST = 1000
"""Fields that would need more columns stand in the column `output`, as an object."""
_FORMULA = re.compile("'*[=+\\-@\t\r]")
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_text = msgspec.json.Decoder(str).decode


def csv_lines(results: Results) -> Iterator[bytes]:
    """The heading and a row for each result. Passes over the results twice: first for the columns."""
    table = _Table.of(results())
    yield table.heading()
    for result in results():
        yield table.row(result)


class _Table:
    def __init__(self, fields: Sequence[str], *, has_output: bool, has_files: bool) -> None:
        self._fields = frozenset(fields)
        self._names = fields
        self._has_output, self._has_files = has_output, has_files
        self._buffer = io.StringIO()
        # Both characters of a line's end, so that cells with either are quoted in every version of Python.
        self._writer = csv.writer(self._buffer, lineterminator="\r\n")

    @classmethod
    def of(cls, results: Iterable[Result]) -> _Table:
        """The table that has room for these results."""
        fields: dict[str, None] = {}
        has_output = has_files = False
        for _, record in results:
            has_files = has_files or bool(record.files)
            found = _object(record)
            if found is None:
                has_output = True
                continue
            for name in found:
                if name not in fields:
                    if len(fields) < COLUMNS_MOST:
                        fields[name] = None
                    else:
                        has_output = True
        return cls(list(fields), has_output=has_output, has_files=has_files)

    def heading(self) -> bytes:
        last = [*(["output"] if self._has_output else []), *(["files"] if self._has_files else [])]
        taken = {"index", "key", *last}
        columns = []
        for name in self._names:
            while name in taken:
                name = f"output.{name}"
            taken.add(name)
            columns.append(name)
        return self._line([_safe(one) for one in ("index", "key", *columns, *last)])

    def row(self, result: Result) -> bytes:
        record = result.record
        found = _object(record)
        cells = [str(result.position), _safe(record.key)]
        cells += [_cell(found.get(name)) for name in self._names] if found is not None else [""] * len(self._names)
        if self._has_output:
            cells.append(_cell(record.output) if found is None else self._rest(found))
        if self._has_files:
            cells.append(_files(record.files))
        return self._line(cells)

    def _rest(self, found: Mapping[str, Raw]) -> str:
        """The fields that have no column."""
        rest = {name: value for name, value in found.items() if name not in self._fields}
        return msgspec.json.encode(rest).decode() if rest else ""

    def _line(self, cells: Sequence[str]) -> bytes:
        self._buffer.seek(0)
        self._buffer.truncate()
        self._writer.writerow(cells)
        return (self._buffer.getvalue()[:-2] + "\n").encode("utf-8", "backslashreplace")


def _object(record: Record) -> dict[str, Raw] | None:
    """The fields of an output that is an object, each still as JSON."""
    return _fields(record.output) if _first(record.output) == b"{" else None


def _first(raw: Raw) -> bytes:
    return bytes(raw).lstrip()[:1]


def _cell(raw: Raw | None) -> str:
    if raw is None:
        return ""
    first = _first(raw)
    if first == b'"':
        return _safe(_text(raw))
    return "" if first == b"n" else bytes(raw).decode().strip()


def _files(files: Sequence[PublishedFile]) -> str:
    return msgspec.json.encode([one.as_result for one in files]).decode() if files else ""


def _safe(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text

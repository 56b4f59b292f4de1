"""A file of answers: one line per item, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrun.people.desk import ReplyTo


_OURS = ("key", "answer", "text", "index", "question")
_PREFIX = "details."
_YES, _NO = ("yes", "y", "true", "1", "approve", "approved"), ("no", "n", "false", "0", "refuse", "refused")


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the file, and its place there."""

    where: str
    cells: dict[str, Any]
    is_table: bool
    """Whether the file is a table: then every cell is text, and an empty one leaves a detail unchanged."""


def read_answers(file: str) -> list[ReplyTo]:
    """The answers in the file, whether or not items wait for them. Anything unclear is an error.

    Lines without an answer are ignored and counted in a message.
    """
    from agentrun.errors import UsageError
    from agentrun_cli.terminal import counted, say

    found, empty = [], 0
    for row in _rows(file):
        key, word = row.cells.get("key"), row.cells.get("answer")
        if key is None or key == "":
            raise UsageError(f"{row.where}: has no key; add one")
        if word is None or word == "":
            empty += 1
            continue
        found.append(_reply(str(key), str(word), row))
    if empty:
        say(f"{counted(empty, 'line')} without an answer ignored")
    return found


def _reply(key: str, word: str, row: _Row) -> ReplyTo:
    from agentrun.errors import UsageError
    from agentrun.people.desk import ReplyTo
    from agentrun_cli.terminal import clean

    plain = word.strip().lower()
    if plain not in (*_YES, *_NO):
        raise UsageError(f"{row.where}: answer is {clean(word, limit=60)}; write yes or no")
    details = {
        name.removeprefix(_PREFIX): value
        for name, value in row.cells.items()
        if name not in _OURS and value is not None and not (value == "" and row.is_table)
    }
    text = str(row.cells.get("text") or "")
    return ReplyTo(key, plain in _YES, text, details, is_typed=row.is_table, where=row.where)


def _rows(file: str) -> Iterator[_Row]:
    import csv

    from agentrun.errors import UsageError
    from agentrun.values.json import parse_value
    from agentrun_cli.terminal import HERE, shown_path

    path = HERE / file
    shown = shown_path(path)
    is_table = path.suffix.lower() == ".csv"
    if not is_table and path.suffix.lower() not in (".jsonl", ".ndjson"):
        raise UsageError(f"{shown}: is neither .csv nor .jsonl; give a file of one of these kinds")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            if is_table:
                table = csv.DictReader(lines, strict=True)
                if "key" not in (table.fieldnames or ()) or "answer" not in (table.fieldnames or ()):
                    raise UsageError(f"{shown}: its first line must name the columns, among them key and answer")
                for row in table:
                    where = f"{shown}:{table.line_num}"
                    if None in row:
                        raise UsageError(f"{where}: has more cells than the first line has columns")
                    yield _Row(where, row, is_table=True)
                return
            for number, line in enumerate(lines, 1):
                if line.strip():
                    value = parse_value(line)
                    if not isinstance(value, dict):
                        raise UsageError(f'{shown}:{number}: is not an object; write {{"key": …, "answer": "yes"}}')
                    yield _Row(f"{shown}:{number}", value, is_table=False)
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise UsageError(f"{shown}: cannot be read: {error}") from None

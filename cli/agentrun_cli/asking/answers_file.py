"""A file of answers: one line per item, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrun.people.desk import ReplyTo
    from agentrun.views.finding import KnownJob
    from agentrun.views.item import Question


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


def read_answers(file: str, known: KnownJob) -> list[ReplyTo]:
    """The answers in the file to items that wait. Anything unclear is an error.

    Lines without an answer, and lines of items that no longer wait, are ignored and counted in a message.
    """
    from agentrun.errors import UsageError
    from agentrun.people.selecting import find_item
    from agentrun_cli.asking.choosing import open_items
    from agentrun_cli.terminal import HERE, clean, counted, say

    found: dict[str, ReplyTo] = {}
    empty, settled = 0, []
    with open_items(known) as listing:
        for row in _rows(file):
            where, key, word = row.where, row.cells.get("key"), row.cells.get("answer")
            if key is None or key == "":
                raise UsageError(f"{where}: has no key; add one")
            if word is None or word == "":
                empty += 1
                continue
            try:
                view = find_item(known, listing, str(key), here=HERE)
            except UsageError as error:
                raise UsageError(f"{where}: {error.message}") from None
            if view.key in found:
                raise UsageError(f"{where}: answers {clean(view.key)} a second time; keep one of the two lines")
            if view.question is None:
                settled.append(view.key)
                continue
            found[view.key] = _reply(view.key, str(word), row, view.question)
    if empty:
        say(f"{counted(empty, 'line')} without an answer ignored")
    if settled:
        say(f"{counted(len(settled), 'line')} ignored: no longer waiting, such as {clean(settled[0])}")
    return list(found.values())


def _reply(key: str, word: str, row: _Row, question: Question) -> ReplyTo:
    from agentrun.errors import UsageError
    from agentrun.people.desk import ReplyTo
    from agentrun.values.json import parse_value
    from agentrun_cli.terminal import clean

    where, known, plain = row.where, question.details, word.strip().lower()
    if plain not in (*_YES, *_NO):
        raise UsageError(f"{where}: answer is {clean(word, limit=60)}; write yes or no")
    details = {}
    for name, value in row.cells.items():
        if name in _OURS or value is None or (value == "" and row.is_table):
            continue
        name = name.removeprefix(_PREFIX)
        if name not in known:
            has = f"it has {', '.join(map(clean, known))}" if known else "it has none"
            raise UsageError(f"{where}: the question has no detail {clean(name, limit=100)}; {has}")
        if row.is_table and not isinstance(known[name], str):
            try:
                value = parse_value(value)
            except ValueError as error:
                raise UsageError(f"{where}: {clean(name)} is {error}") from None
        details[name] = value
    return ReplyTo(key, plain in _YES, str(row.cells.get("text") or ""), details)


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

"""Records of a file: JSON lines, and CSV with a header."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from agentrun.errors import ItemsError
from agentrun.item import Item
from agentrun.items.port import Identity
from agentrun.items.records import field_key, parse_json, record_digest
from agentrun.items.textfile import TextFile
from agentrun.values.text import quoted

JsonLine = tuple[int, bytes]
CsvRow = tuple[int, list[str], list[str]]
"""The row's first line, its header, its cells."""
_CELL_LIMIT_CHARACTERS = 64 * 1024 * 1024


class JsonlSource:
    def __init__(self, file: TextFile, *, key: str | None = None) -> None:
        self._file = file
        self._key = key
        self._last: tuple[JsonLine, Any] = ((0, b""), None)
        """The line identified last, and its value: nearly always the next item to be made."""
        self.unique = key is not None

    def __iter__(self) -> Iterator[JsonLine]:
        return self._file.lines()

    def identify(self, raw: JsonLine, *, with_content: bool = True) -> Identity:
        field, content = self._key, None
        try:
            value = parse_json(raw[1])
            if with_content or field is None:
                content = record_digest(value)
        except (ValueError, RecursionError) as error:
            raise self._refusal(raw, error) from None
        self._last = (raw, value)
        if field is None:
            assert content is not None
            return Identity(content.hex(), content, 0)
        # The common case first, without the checks that it does not need.
        if type(value) is dict and type(key := value.get(field)) is str and 0 < len(key) <= 256 and "\0" not in key:
            return Identity(key, content, 0)
        return Identity(field_key(value, field, self._file.line(raw[0])), content, 0)

    def content(self, raw: JsonLine) -> bytes:
        content = self.identify(raw).content
        assert content is not None
        return content

    def glance(self, raw: JsonLine) -> int:
        return hash(raw[1])

    def item(self, raw: JsonLine, index: int, key: str) -> Item:
        return Item(index, key, data=self._value(raw))

    def where(self, index: int) -> str:
        return self._file.where(index)

    def describe(self) -> str:
        return self._file.describe()

    def _value(self, raw: JsonLine) -> Any:
        known, value = self._last
        if known is raw:
            # Handed out once, because an agent may modify it.
            self._last = ((0, b""), None)
            return value
        try:
            return parse_json(raw[1])
        except (ValueError, RecursionError) as error:
            raise self._refusal(raw, error) from None

    def _refusal(self, raw: JsonLine, error: Exception) -> ItemsError:
        if isinstance(error, RecursionError):
            return ItemsError(f"{self._file.line(raw[0])}: is nested too deeply; flatten it")
        try:
            text = raw[1].decode()
        except UnicodeDecodeError:
            return self._file.not_utf8(raw[0])
        column = getattr(error, "colno", None)
        place = f" at column {column}" if column else ""
        why = getattr(error, "msg", None) or str(error)
        return ItemsError(f"{self._file.line(raw[0])}: is not JSON{place}: {why}: {quoted(text.strip()[:60])}")


class CsvSource:
    """An item's data is a dict of text, by the header's names."""

    def __init__(self, file: TextFile, *, key: str | None = None) -> None:
        self._file = file
        self._key = key
        self.unique = key is not None

    def __iter__(self) -> Iterator[CsvRow]:
        # The limit is the interpreter's, not the reader's, and 128 KiB is less than a document.
        if csv.field_size_limit() < _CELL_LIMIT_CHARACTERS:
            csv.field_size_limit(_CELL_LIMIT_CHARACTERS)
        # Strict, so that a quote that is never closed is an error and not the rest of the file in one cell.
        reader = csv.reader(self._text(), strict=True)
        header: list[str] | None = None
        before = 0
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ItemsError(f"{self._file.line(before + 1)}: is not CSV: {error}") from None
            number, before = before + 1, reader.line_num
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if header is None:
                header = self._header(row, number)
            else:
                yield number, header, row

    def identify(self, raw: CsvRow, *, with_content: bool = True) -> Identity:
        value = self._value(raw)
        content = record_digest(value)
        key = content.hex() if self._key is None else field_key(value, self._key, self._file.line(raw[0]))
        return Identity(key, content, 0)

    def content(self, raw: CsvRow) -> bytes:
        return record_digest(self._value(raw))

    def glance(self, raw: CsvRow) -> int:
        return 0

    def item(self, raw: CsvRow, index: int, key: str) -> Item:
        return Item(index, key, data=self._value(raw))

    def where(self, index: int) -> str:
        for position, raw in enumerate(self):
            if position == index:
                return self._file.line(raw[0])
        return f"{self._file.name}, item {index}"

    def describe(self) -> str:
        return f"{self._file.name} holds no rows below its header ({self._file.path})"

    def _value(self, raw: CsvRow) -> dict[str, str]:
        number, header, row = raw
        if len(row) != len(header):
            raise ItemsError(
                f"{self._file.line(number)}: has {len(row)} cells where the header has {len(header)}; "
                "a cell with a comma in it needs quotes"
            )
        return dict(zip(header, row, strict=True))

    def _header(self, row: list[str], number: int) -> list[str]:
        where = self._file.line(number)
        for position, name in enumerate(row):
            if not name.strip():
                raise ItemsError(f"{where}: column {position + 1} of the header has no name; give it one")
            if name in row[:position]:
                raise ItemsError(f"{where}: the header has {quoted(name)} twice; give each column its own name")
        if self._key is not None and self._key not in row:
            names = ", ".join(row[:12])
            raise ItemsError(f"{where}: items.key is {quoted(self._key)}, but the header has no such column: {names}")
        return row

    def _text(self) -> Iterator[str]:
        # Blank lines too: one may be inside a quoted cell.
        with self._file.open() as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise self._file.not_utf8(number) from None

"""Lines of a text file, one item each."""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.item import Item
from agentrun.items.port import Identity, check_key, digest, text_key
from agentrun.items.textfile import TextFile, without_newline

Line = tuple[int, bytes]


class LinesSource:
    unique = False

    def __init__(self, file: TextFile) -> None:
        self._file = file

    def __iter__(self) -> Iterator[Line]:
        return self._file.lines()

    def identify(self, raw: Line, *, with_content: bool = True) -> Identity:
        line = without_newline(raw[1])
        key = check_key(text_key(self._text(raw[0], line), line), self._file.line(raw[0]))
        return Identity(key, digest(line), 0)

    def content(self, raw: Line) -> bytes:
        return digest(without_newline(raw[1]))

    def glance(self, raw: Line) -> int:
        return 0

    def item(self, raw: Line, index: int, key: str) -> Item:
        return Item(index, key, line=self._text(raw[0], without_newline(raw[1])))

    def where(self, index: int) -> str:
        return self._file.where(index)

    def describe(self) -> str:
        return self._file.describe()

    def _text(self, number: int, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise self._file.not_utf8(number) from None

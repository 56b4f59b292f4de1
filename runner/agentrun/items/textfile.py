"""A file of lines, as the sources that read one see it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from io import BufferedReader, FileIO
from pathlib import Path

from agentrun.errors import ItemsError

BUFFER_BYTES = 1 << 18
BOM = b"\xef\xbb\xbf"


class TextFile:
    """Lines end at `\\n` and nowhere else. `name` is what messages call the file."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    def open(self) -> BufferedReader:
        try:
            # Before it is opened: a pipe without a writer would be waited for.
            mode = self.path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise ItemsError(f"{self.name}: is a folder; give a file")
            if not stat.S_ISREG(mode):
                raise ItemsError(f"{self.name}: is not a regular file; give its content on standard input, as -")
            return BufferedReader(FileIO(self.path), BUFFER_BYTES)
        except FileNotFoundError:
            raise ItemsError(f"{self.name}: there is no such file ({self.path})") from None
        except OSError as error:
            raise ItemsError(f"{self.name}: cannot be read: {error.strerror}") from None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line that is not blank, with its number from 1."""
        with self.open() as file:
            try:
                if file.peek(3)[:3] == BOM:
                    file.read(3)
                for line in enumerate(file, 1):
                    if not line[1].isspace():
                        yield line
            except OSError as error:
                raise ItemsError(f"{self.name}: cannot be read: {error.strerror}") from None

    def line(self, number: int) -> str:
        return f"{self.name}, line {number}"

    def where(self, index: int) -> str:
        for position, (number, _) in enumerate(self.lines()):
            if position == index:
                return self.line(number)
        return f"{self.name}, item {index}"

    def not_utf8(self, number: int) -> ItemsError:
        return ItemsError(f"{self.line(number)}: is not UTF-8; save the file as UTF-8")

    def describe(self) -> str:
        return f"{self.name} holds no items ({self.path})"


def without_newline(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")

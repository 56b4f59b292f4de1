"""Text measured in the cells of a terminal: a wide character takes two of them, a combining one none."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len as cell_len
from rich.cells import get_character_cell_size

CUT = "…"


def cut_right(text: str, most: int) -> str:
    """The text in at most so many cells, without its end."""
    if cell_len(text) <= most:
        return text
    return _first(text, most - 1) + CUT if most > 0 else ""


def cut_left(text: str, most: int) -> str:
    """The text in at most so many cells, without its beginning: of a path, the end tells more."""
    if cell_len(text) <= most:
        return text
    return CUT + _first(text[::-1], most - 1)[::-1] if most > 0 else ""


def padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def wrap(text: str, width: int, *, indent: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken between words; all but the first are indented.

    Only a word that is wider than a line is broken itself.
    """
    indent = min(indent, width // 3)
    room, line = width, ""
    for word in text.split(" "):
        spaced = f"{line} {word}" if line else word
        if cell_len(spaced) <= room:
            line = spaced
            continue
        if line.strip():
            yield line.rstrip()
        line = " " * indent + word
        while cell_len(line) > room:
            head = _first(line, room) or line[0]
            yield head
            line = " " * indent + line[len(head) :]
    if line.strip():
        yield line.rstrip()


def _first(text: str, most: int) -> str:
    """As much of its beginning as fits."""
    cells = 0
    for at, character in enumerate(text):
        cells += get_character_cell_size(character)
        if cells > most:
            return text[:at]
    return text

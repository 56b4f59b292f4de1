"""A few lines at the end of the terminal that are drawn again in place.

**Between two drawings the cursor is in an empty line above them, where the next line that stays is to be printed.** A
terminal that loses lines drops what is below the cursor; one that becomes narrower wraps long lines again, and moves
as many lines from its top into its history. Either way, what is to be erased is what follows the cursor, as long as
the cursor's own line is not among those that were moved. With the cursor below the lines one would have to know how the
terminal has broken them, and lines that it has moved off its top could never be erased.

So there must be lines above to be moved: where only a few were printed, further empty ones take their place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from agentrun_cli.terminal import fitting

SAVE_CURSOR, RESTORE_CURSOR = "\x1b7", "\x1b8"
WRAP_OFF, WRAP_ON = "\x1b[?7l", "\x1b[?7h"
ERASE_LINE = "\x1b[K"
ERASE_REST = f"\r{ERASE_LINE}{SAVE_CURSOR}\x1b[B\x1b[J{RESTORE_CURSOR}"
"""This line, and then from the next one on: in the terminal's first line, tmux takes `\\x1b[J` for a cleared screen,
and keeps what was on it in its history."""
DOWN = "\x1b[B"
"""Stops at the terminal's last line, and never scrolls: the terminal may be lower by now than it was when asked."""
NARROW = 20
"""As narrow as a terminal may become at one go: a line that is as wide as it then takes the place of several."""
DEFAULT_SIZE = (80, 24)


class Screen:
    """Each drawing is one write. The cursor is never hidden: a runner that is killed could not show it again."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn: list[str] = []
        self._drawn_at = (0, 0)
        self._lines_above = 1
        """At least so many lines are above the cursor: those that were printed, and the user's command line."""
        self._empty = 1

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            columns = lines = 0
        # Some terminals do not know their size.
        return columns or _number("COLUMNS") or DEFAULT_SIZE[0], lines or _number("LINES") or DEFAULT_SIZE[1]

    def print(self, line: str) -> None:
        """Print a line that stays, before anything is drawn."""
        self._lines_above += 1
        self._write(f"{line}\n")

    def draw(self, lines: Sequence[str], *, size: tuple[int, int], above: Sequence[str] = ()) -> None:
        """Show these lines, which fit the size, instead of the last ones; `above` stays on the terminal for good."""
        lines = list(lines)
        is_same_place = not above and size == self._drawn_at and len(lines) == len(self._drawn)
        if is_same_place and lines == self._drawn:
            return
        self._lines_above += len(above)
        parts = []
        if not is_same_place:
            self._empty = self._empty_lines(len(lines), *size)
            parts += [ERASE_REST, *(f"{line}\r\n" for line in above)]
            # Room for the lines, by scrolling where there is none.
            room = self._empty + len(lines)
            parts += ["\n" * room, f"\x1b[{room}A"] if lines else []
        if lines:
            # The terminal may be narrower by now than it was when asked: a line is cut then, not broken.
            parts += [SAVE_CURSOR, WRAP_OFF, DOWN * (self._empty - 1)]
            parts += [*(f"{DOWN}\r{ERASE_LINE}{line}" for line in lines), RESTORE_CURSOR, WRAP_ON]
        self._drawn, self._drawn_at = lines, size
        self._write("".join(parts))

    def _empty_lines(self, count: int, columns: int, lines: int) -> int:
        """How many are to be left empty above so many lines: at least the cursor's own."""
        wanted = -(-columns // NARROW) - self._lines_above
        return max(min(wanted, lines - count), 1)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(fitting(text, self._stream))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the terminal is gone; the run goes on without it

    def close(self, *, above: Sequence[str] = ()) -> None:
        """Erase the lines."""
        if self._drawn or above:
            self.draw((), size=self.size(), above=above)


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0

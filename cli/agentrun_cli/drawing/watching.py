"""Lines that are drawn again every second, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentrun_cli.terminal import fitting, is_terminal, put

INTERVAL_SECONDS = 1.0


def watch_lines(read: Callable[[], Sequence[str]], *, wrapped: bool) -> None:
    """Draw what `read` returns, for ever: on a terminal in place, elsewhere again whenever it has changed.

    On a terminal, lines that are wider than it are `wrapped`, or else cut; where there are more of them than it has
    lines, `...` stands for the rest until the end.
    """
    if is_terminal(sys.__stdout__):
        _draw_in_place(read, wrapped=wrapped)
        return
    drawn = ""
    while True:
        if (text := "\n".join(read())) != drawn:
            put(text)
            drawn = text
        time.sleep(INTERVAL_SECONDS)


def _draw_in_place(read: Callable[[], Sequence[str]], *, wrapped: bool) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    class Terminal(Console):
        def show_cursor(self, show: bool = True) -> bool:
            # Never hidden: a command that is killed could not bring it back.
            return False

    assert sys.__stdout__ is not None
    terminal = Terminal(file=sys.__stdout__, highlight=False, markup=False, emoji=False)
    drawn: Any = None
    # Without a thread of its own: it is drawn here, and only when it differs.
    with Live(console=terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            text = fitting("\n".join(read()), sys.__stdout__)
            if (text, terminal.size) != drawn:
                drawn = (text, terminal.size)
                # The only codes in it are our own colours: users' data is cleaned of all of them.
                lines = Text.from_ansi(text, no_wrap=not wrapped, overflow="fold" if wrapped else "crop")
                live.update(lines, refresh=True)
            time.sleep(INTERVAL_SECONDS)

"""What differs between two runs, as a unified diff of each result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import unified_diff
from typing import TYPE_CHECKING

from agentrun_cli.terminal import Colour, clean, clean_text, coloured

if TYPE_CHECKING:
    from agentrun.views.differences import Difference

_COLOURS: dict[str, Colour] = {"added": "green", "changed": "yellow", "gone": "red"}
_SIGNS: dict[str, Colour] = {"+": "green", "-": "red", "@": "dim"}
_LONG_BYTES = 256 * 1024
_CONTEXT_LINES = 2


def difference_lines(one: Difference) -> Iterator[str]:
    """One result that differs: its key, and of a changed one what changed."""
    state = f"  ({one.state} now)" if one.state else ""
    yield f"{coloured(f'{one.change:<7}', _COLOURS[one.change], sys.stdout)}  {clean(one.key, limit=1100)}{state}"
    if one.change != "changed":
        return
    before, after = one.sizes
    if before + after > _LONG_BYTES:
        yield f"    too long to compare line by line: {before:,} bytes before, {after:,} after"
        return
    for number, line in enumerate(unified_diff(*one.lines, n=_CONTEXT_LINES, lineterm="")):
        if number > 1:  # without the names of two files
            yield "    " + coloured(clean_text(line), _SIGNS.get(line[:1]), sys.stdout)

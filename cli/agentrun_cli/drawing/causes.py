"""Why items failed, for `failures`: each cause with the first of its items."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agentrun_cli.terminal import clean, coloured, shown_path

if TYPE_CHECKING:
    from agentrun.views.causes import CauseGroup, Place


KEYS_SHOWN = 5


def cause_lines(groups: Iterable[CauseGroup]) -> Iterator[str]:
    for group in groups:
        yield ""
        yield coloured(f"{group.count:,}  ", "bold", sys.stdout) + coloured(clean(group.example), "red", sys.stdout)
        if group.raised is not None:
            yield f"      at {_place(group.raised)}"
            if group.raised.code:
                yield f"         {coloured(clean(group.raised.code, limit=120), 'dim', sys.stdout)}"
        for key in group.keys[:KEYS_SHOWN]:
            yield f"      {clean(key)}"
        if group.count > KEYS_SHOWN:
            yield f"      and {group.count - KEYS_SHOWN:,} more"


def _place(place: Place) -> str:
    """The line, as a path that can be opened from where the user is."""
    function = f", in {clean(place.function, limit=100)}" if place.function else ""
    return f"{shown_path(place.file)}:{place.line}{function}"

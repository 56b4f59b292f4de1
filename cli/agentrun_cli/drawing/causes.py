"""Why items failed, for `failures`: each cause with the first of its items."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agentrun_cli.terminal import clean, coloured

if TYPE_CHECKING:
    from agentrun.views.causes import CauseGroup


KEYS_SHOWN = 5


def cause_lines(groups: Iterable[CauseGroup]) -> Iterator[str]:
    for group in groups:
        yield ""
        yield coloured(f"{group.count:,}  ", "bold", sys.stdout) + coloured(clean(group.example), "red", sys.stdout)
        if group.where:
            yield f"      at {clean(group.where)}"
        for key in group.keys[:KEYS_SHOWN]:
            yield f"      {clean(key)}"
        if group.count > KEYS_SHOWN:
            yield f"      and {group.count - KEYS_SHOWN:,} more"

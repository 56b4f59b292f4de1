"""A damaged state and what a repair makes of it, for `repair`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentrun_cli.terminal import clean, counted

if TYPE_CHECKING:
    from agentrun.people.repairing import Damage

_WIDTH = 9


def damage_lines(name: str, damage: Damage) -> Iterator[str]:
    """What is wrong, what is whole, what would be lost and where the old files go."""
    yield f"{clean(name)}: {clean(damage.problem)}"
    if damage.run_id:
        states = ", ".join(f"{count:,} {state}" for state, count in damage.counts.items())
        of = f"{counted(damage.records, 'record')} of {counted(damage.items, 'item')}"
        yield from _row("whole", [f"{of}: {states or 'none settled'}, in {' and '.join(damage.found_in)}"])
        yield from _row("lost", damage.lost or ["nothing"])
    yield from _row("unknown", damage.unknown)
    yield from _row("aside", damage.aside)
    yield from _row("note", damage.notes)


def _row(name: str, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        head = f"{name}:" if number == 0 else ""
        yield f"{head:<{_WIDTH}}{clean(line)}"

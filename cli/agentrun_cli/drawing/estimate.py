"""What a pilot says about the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from agentrun_cli import terminal as console
from agentrun_cli.terminal import clean, coloured

if TYPE_CHECKING:
    from agentrun.views.jobs import Estimate, Range


def estimate_lines(found: Estimate) -> Iterator[str]:
    """Time, tokens, cost and failures of the rest, each with its range; or why there is no estimate."""
    if found.why_not:
        yield f"  {coloured(found.why_not, 'yellow')}"
        for one in found.causes:
            yield f"    {one.count:,} with {clean(one.cause, limit=200)}"
        return
    yield f"  estimate:     {console.counted(found.rest, 'more item')}, {found.concurrency:,} at a time"
    for label, figure, words in (
        ("time", found.seconds, _duration),
        ("tokens", found.tokens, _count),
        ("cost", found.cost, _cost),
        ("failures", found.failures, _count),
    ):
        if figure is not None:
            yield f"    {f'{label}:':<12}{_between(figure, words)}"
    yield "    in about 8 of 10 cases it is within these ranges;"
    yield f"    rare expensive items may be missing among the {found.items:,} of the pilot"


def _between(figure: Range, words: Callable[[float], str]) -> str:
    likely, low, high = words(figure.likely), words(figure.low), words(figure.high)
    return likely if low == high else f"about {likely}, {low} to {high}"


def _duration(seconds: float) -> str:
    from agentrun.values.units import format_duration

    return format_duration(seconds)


def _cost(cost: float) -> str:
    from agentrun.money.usage import format_cost

    return format_cost(cost)


def _count(count: float) -> str:
    """With three digits that mean something."""
    digits = 3 - len(f"{count:.0f}")
    return f"{round(count, min(digits, 0)):,.0f}"

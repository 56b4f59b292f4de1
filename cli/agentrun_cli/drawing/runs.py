"""The runs of a job as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentrun_cli.drawing.table import format_took
from agentrun_cli.terminal import Colour, clean, coloured

if TYPE_CHECKING:
    from agentrun.views.runs import RunView

_COLOURS: dict[str, Colour] = {"finished": "green", "unfinished": "blue", "abandoned": "yellow", "stopped": "yellow"}
_TO_THE_RIGHT = ("RUN", "ITEMS", "DONE", "FAILED", "COST", "TOOK")


def run_table(runs: Sequence[RunView]) -> Iterator[str]:
    """A line for each run, below a heading; columns are as wide as what is in them."""
    from agentrun.money.usage import format_cost
    from agentrun_cli.drawing.plan import began_at

    head = ["RUN", "STARTED", "STATE", "ITEMS", "DONE", "FAILED", "COST", "TOOK", "AGENT", ""]
    rows = [head]
    for run in runs:
        cells = [str(run.number) if run.number else "-", began_at(run.run_id), run.status, f"{run.total:,}"]
        cells += [f"{run.counts.get(kind, 0):,}" for kind in ("done", "failed")]
        cells += [format_cost(run.cost) if run.cost is not None else "-", format_took(run.seconds)]
        cells += [clean(run.agent, limit=12) or "-", "" if run.has_records else "only the summary is kept"]
        rows.append(cells)
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        padded = [
            f"{cell:>{width}}" if name in _TO_THE_RIGHT else f"{cell:<{width}}"
            for name, cell, width in zip(head, row, widths, strict=True)
        ]
        if number:
            padded[2] = coloured(padded[2], _COLOURS.get(row[2]), sys.__stdout__)
            yield "  ".join(padded).rstrip()
        else:
            yield coloured("  ".join(padded).rstrip(), "dim", sys.__stdout__)

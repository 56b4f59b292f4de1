"""Tables: the jobs of `status`, the items of `items`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from agentrun_cli.terminal import Colour, ago, clean, coloured, is_terminal

if TYPE_CHECKING:
    from agentrun.people.clearing import Clearable
    from agentrun.views.item import ItemView
    from agentrun.views.jobs import JobView


JOB_COLOURS: dict[str, Colour] = {
    "running": "blue",
    "paused": "yellow",
    "interrupted": "yellow",
    "waiting": "yellow",
    "failed": "red",
    "damaged": "red",
    "untrusted": "red",
    "unreachable": "red",
    "finished": "green",
    "moved": "yellow",
}
ITEM_COLOURS: dict[str, Colour] = {"done": "green", "failed": "red", "waiting": "yellow", "running": "blue"}


def job_table(views: list[JobView], *, has_place: bool = False) -> Iterator[str]:
    """A line for each job, below a heading; columns are as wide as what is in them. `has_place`: with its folder."""
    from agentrun.money.usage import format_cost

    has_cost = any(view.cost for view in views)
    waits = any(view.counts.get("waiting") for view in views)
    more = [*(["WAITING"] if waits else []), *(["COST"] if has_cost else [])]
    head = ["JOB", "STATE", "DONE", "FAILED", *more, "LAST CHECKPOINT", *(["FOLDER"] if has_place else [])]
    rows = [head]
    for view in views:
        known = view.status not in ("new", "damaged", "untrusted", "unreachable")
        cells = [clean(view.job, limit=40) or "-", _state(view)]
        cells += [f"{view.counts.get('done', 0):,}/{view.total:,}" if known else "-"]
        cells += [f"{view.counts.get('failed', 0):,}" if known else "-"]
        cells += [f"{view.counts.get('waiting', 0):,}" if known else "-"] if waits else []
        cells += [format_cost(view.cost) if view.cost else "-"] if has_cost else []
        cells.append(ago(view.age_seconds) if known else "-")
        rows.append([*cells, *([_place(view)] if has_place else [])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for number, row in enumerate(rows):
        padded = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        if number:
            padded[1] = coloured(padded[1], JOB_COLOURS.get(row[1].partition(" ")[0]), sys.__stdout__)
            yield "  ".join(padded).rstrip()
        else:
            yield coloured("  ".join(padded).rstrip(), "dim", sys.__stdout__)


def _state(view: JobView) -> str:
    mark = f" ({'sealed' if view.sealed else 'not sealed'})" if view.figures_only else ""
    return ("paused" if view.paused is not None else view.status) + mark


def _place(view: JobView) -> str:
    """The folder that the job is started from; for another state folder than `.agentrun`, that one itself."""
    if view.folder is None:
        return "-"
    root = view.folder.parent if view.job else view.folder
    home = os.path.expanduser("~")
    place = str(root.parent if root.name == ".agentrun" else root)
    return clean("~" + place[len(home) :] if place == home or place.startswith(home.rstrip("/") + "/") else place)


def clearing_lines(found: Clearable) -> Iterator[str]:
    """The finished jobs that would be removed, and those that are left, with the reason."""
    from agentrun_cli.terminal import counted

    if found.finished:
        width = max(len(clean(view.job, limit=40)) for view in found.finished)
        yield f"this removes the state and history of {counted(len(found.finished), 'job')}; written results stay:"
        for view in found.finished:
            job, items = clean(view.job, limit=40), counted(view.total, "item")
            yield f"  {job:<{width}}  {items}, finished {ago(view.age_seconds)}"
    for view, why in found.spared:
        yield f"  left: {clean(view.job, limit=40)} ({why}; remove it by its name)"


def item_table(items: Iterable[ItemView], *, total: int, columns: Collection[str]) -> Iterator[str]:
    """A line for each item below a heading; on a terminal cut to its width. Nothing if there are none.

    Streamed, so the widths are known beforehand: `total` is the number of items. `columns` are those shown only where
    they say something, `cost` and `agent`.
    """
    at_terminal = is_terminal(sys.stdout)
    width = _terminal_width() if at_terminal else None
    index_width = max(len(str(total)), 5)
    state_at, is_first = index_width + 2, True
    for item, line in _item_lines(items, index_width, columns):
        if is_first:
            head = f"{'index':>{index_width}}  {'state':<7}  {'tries':>5}  {'took':>6}  {'age':>6}  "
            head += ("    cost  " if "cost" in columns else "") + ("agent         " if "agent" in columns else "")
            yield coloured(head + "key", "dim", sys.stdout)
        is_first = False
        line = line if width is None or len(line) <= width else line[: width - 1] + "…"
        end = state_at + len(item.state)
        yield line[:state_at] + coloured(line[state_at:end], ITEM_COLOURS.get(item.state), sys.stdout) + line[end:]


def _item_lines(
    items: Iterable[ItemView], index_width: int, columns: Collection[str]
) -> Iterator[tuple[ItemView, str]]:
    from agentrun.money.usage import format_cost
    from agentrun.values.units import format_duration

    now = time.time()
    has_cost, has_agent = "cost" in columns, "agent" in columns
    for item in items:
        attempts, ended_at = item.attempts, item.ended_at
        took = format_took(item.seconds) if attempts else "-"
        age = format_duration(max(0.0, now - ended_at)) if ended_at else "-"
        line = f"{item.index:>{index_width}}  {item.state:<7}  {attempts or '-':>5}  {took:>6}  {age:>6}  "
        if has_cost:
            line += f"{format_cost(item.cost) if item.cost is not None else '-':>8}  "
        if has_agent:
            line += f"{clean(item.agent, limit=12) or '-':<12}  "
        # The common case first: cleaning takes longer than all the rest of a line.
        line += item.key if item.key.isascii() and item.key.isprintable() else clean(item.key, limit=1100)
        if cause := item.cause:
            line += f"  {clean(cause)}"
        elif (question := item.question) is not None and question.text:
            line += f"  asks: {clean(question.text, limit=200)}"
        elif item.changed:
            line += "  (changed since its last result)"
        yield item, line


def format_took(seconds: float) -> str:
    """A duration that may be short."""
    from agentrun.values.units import format_duration

    return f"{seconds * 1000:.0f}ms" if seconds < 0.0995 else format_duration(seconds)


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size().columns

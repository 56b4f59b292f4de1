"""agentrun items: one line for each item."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing
    from agentrun_cli.terminal import Colour


class State(Enum):
    done = "done"
    failed = "failed"
    skipped = "skipped"
    waiting = "waiting"
    running = "running"
    pending = "pending"


class Order(Enum):
    duration = "duration"
    attempts = "attempts"
    age = "age"
    index = "index"
    key = "key"
    cost = "cost"


@dataclass(frozen=True, slots=True)
class Row:
    """What a line says; an item without its output, since a sort holds them all."""

    index: int
    key: str
    state: str
    attempts: int
    seconds: float
    ended_at: float
    agent: str
    cause: str
    changed: bool
    cost: float | None
    question: str

    @classmethod
    def of(cls, item: ItemView) -> Row:
        return cls(
            item.index,
            item.key,
            item.state,
            item.attempts,
            item.seconds,
            item.ended_at,
            item.agent,
            item.cause,
            item.changed,
            item.cost,
            str(item.question.get("text", "")) if item.question else "",
        )


# The longest, the most, the oldest first: what one looks for. What was never run comes last.
_SORTS: dict[str, Callable[[Row], Any]] = {
    "duration": lambda row: (-row.seconds, row.index),
    "attempts": lambda row: (-row.attempts, row.index),
    "age": lambda row: (not row.ended_at, row.ended_at, row.index),
    "index": lambda row: row.index,
    "key": lambda row: (row.key, row.index),
    "cost": lambda row: (row.cost is None, -(row.cost or 0), row.index),
}
_COLOURS: dict[str, Colour] = {"done": "green", "failed": "red", "waiting": "yellow", "running": "blue"}


def items(
    job: flags.KnownJob,
    state: Annotated[list[State] | None, typer.Option("--state", help="Only these; can be repeated.")] = None,
    sort: Annotated[Order, typer.Option("--sort", help="The longest, most, oldest or dearest first.")] = Order.index,
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    agent_version: Annotated[
        str | None, typer.Option("--agent-version", metavar="V", help="Only of this version of the agent.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most N lines.")] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
) -> None:
    """List the items of a job: state, attempts, duration, age, cost, key."""
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.terminal import say

    known = open_known(job, state_dir)
    with open_items(known) as listing:
        found = (Row.of(item) for item in listing.items({one.value for one in state} if state else None))
        if agent_version is not None:
            found = (row for row in found if row.agent.startswith(agent_version))
        rows = _sorted(found, sort.value, reverse=reverse, limit=limit)
        total, columns = len(listing), _columns(listing)
        count = _put_json(rows) if as_json else _put_lines(rows, index_width=len(str(total)), columns=columns)
    if not count:
        say(f"{known.folder.name}: {f'none of its {total:,} items is so' if total else 'no items are on record'}")


def _columns(listing: Listing) -> list[str]:
    """Those that are there only where they say something."""
    usage = listing.checkpoint.usage if listing.checkpoint else (listing.summary or {}).get("usage") or {}
    return [name for name, wanted in (("cost", "cost" in usage), ("agent", len(listing.versions) > 1)) if wanted]


def _sorted(rows: Iterable[Row], by: str, *, reverse: bool, limit: int | None) -> Iterable[Row]:
    """Streamed in item order where that is asked for; otherwise no more are held than are shown."""
    from heapq import nlargest, nsmallest
    from itertools import islice

    if by == "index" and not reverse:
        return islice(rows, limit)
    if limit is not None:
        return (nlargest if reverse else nsmallest)(limit, rows, key=_SORTS[by])
    return sorted(rows, key=_SORTS[by], reverse=reverse)


def _put_json(rows: Iterable[Row]) -> int:
    import orjson

    from agentrun_cli.terminal import put_json_lines

    count = 0
    for row in rows:
        values = asdict(row)
        if not row.ended_at:
            values["ended_at"] = None
        put_json_lines(orjson.dumps(values, default=str) + b"\n")
        count += 1
    return count


def _put_lines(rows: Iterable[Row], *, index_width: int, columns: Collection[str]) -> int:
    from agentrun_cli.terminal import coloured, fitting, is_terminal, put, put_bytes

    at_terminal = is_terminal(sys.stdout)
    width = _terminal_width() if at_terminal else None
    index_width = max(index_width, 5 if at_terminal else 1)
    count = 0
    for before, line, row in _lines(rows, index_width, columns):
        if at_terminal and not count:
            head = f"{'index':>{index_width}}  {'state':<7}  {'tries':>5}  {'took':>6}  {'age':>6}  "
            head += ("    cost  " if "cost" in columns else "") + ("agent         " if "agent" in columns else "")
            put(coloured(head + "key", "dim", sys.stdout))
        line = line if width is None or len(line) <= width else line[: width - 1] + "…"
        end = before + len(row.state)
        line = line[:before] + coloured(line[before:end], _COLOURS.get(row.state), sys.stdout) + line[end:]
        put_bytes(f"{fitting(line, sys.stdout)}\n".encode(sys.stdout.encoding, "backslashreplace"))
        count += 1
    return count


def _lines(rows: Iterable[Row], index_width: int, columns: Collection[str]) -> Iterator[tuple[int, str, Row]]:
    """Each line, and where in it the state is."""
    from agentrun.money.usage import format_cost
    from agentrun.values.units import format_duration
    from agentrun_cli.terminal import clean

    now = time.time()
    has_cost, has_agent = "cost" in columns, "agent" in columns
    for row in rows:
        took = format_took(row.seconds) if row.attempts else "-"
        age = format_duration(max(0.0, now - row.ended_at)) if row.ended_at else "-"
        line = f"{row.index:>{index_width}}  {row.state:<7}  {row.attempts or '-':>5}  {took:>6}  {age:>6}  "
        if has_cost:
            line += f"{format_cost(row.cost) if row.cost is not None else '-':>8}  "
        if has_agent:
            line += f"{clean(row.agent, limit=12) or '-':<12}  "
        # The common case first: cleaning takes longer than all the rest of a line.
        line += row.key if row.key.isascii() and row.key.isprintable() else clean(row.key, limit=1100)
        if row.cause:
            line += f"  {clean(row.cause)}"
        elif row.question:
            line += f"  asks: {clean(row.question, limit=200)}"
        elif row.changed:
            line += "  (changed since its last result)"
        yield index_width + 2, line, row


def format_took(seconds: float) -> str:
    """A duration that may be short."""
    from agentrun.values.units import format_duration

    return f"{seconds * 1000:.0f}ms" if seconds < 0.0995 else format_duration(seconds)


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size().columns

"""agentrun items: one line for each item."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrun_cli import flags

if TYPE_CHECKING:
    from agentrun.views.item import ItemView
    from agentrun.views.listing import Listing


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
    """What a line shows of an item. Without the output, because a sort holds all rows."""

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
            item.question.text if item.question is not None else "",
        )


# Longest, most, oldest first, because people look for those. Items that never ran come last.
_SORTS: dict[str, Callable[[Row], Any]] = {
    "duration": lambda row: (-row.seconds, row.index),
    "attempts": lambda row: (-row.attempts, row.index),
    "age": lambda row: (not row.ended_at, row.ended_at, row.index),
    "index": lambda row: row.index,
    "key": lambda row: (row.key, row.index),
    "cost": lambda row: (row.cost is None, -(row.cost or 0), row.index),
}


def items(
    job: flags.KnownJob,
    state: Annotated[
        list[State] | None, typer.Option("--state", help="Only items in this state; can be repeated.")
    ] = None,
    sort: Annotated[Order, typer.Option("--sort", help="Longest, most, oldest or most expensive first.")] = Order.index,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    agent_version: Annotated[
        str | None, typer.Option("--agent-version", metavar="V", help="Only results of this version of the agent.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most N lines.")] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
) -> None:
    """List the items of a job: state, attempts, duration, age, cost, key."""
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.drawing.table import item_table
    from agentrun_cli.terminal import say

    known = open_known(job, state_dir)
    with open_items(known) as listing:
        found = (Row.of(item) for item in listing.items({one.value for one in state} if state else None))
        if agent_version is not None:
            found = (row for row in found if row.agent.startswith(agent_version))
        rows = _sorted(found, sort.value, reverse=reverse, limit=limit)
        total, columns = len(listing), _columns(listing)
        count = _put_json(rows) if as_json else _put_lines(item_table(rows, total=total, columns=columns))
    if not count:
        say(f"{known.name}: {f'none of its {total:,} items match' if total else 'no items are on record'}")


def _columns(listing: Listing) -> list[str]:
    """The columns that are shown only where they differ from item to item."""
    wanted = (("cost", listing.usage.cost is not None), ("agent", len(listing.versions) > 1))
    return [name for name, is_wanted in wanted if is_wanted]


def _sorted(rows: Iterable[Row], by: str, *, reverse: bool, limit: int | None) -> Iterable[Row]:
    """The rows in the order asked for. Rows in item order are streamed; otherwise no more than `limit` are held."""
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


def _put_lines(lines: Iterable[str]) -> int:
    """Not flushed at each line: there may be a million."""
    from agentrun_cli.terminal import fitting, put_bytes

    count = 0
    for line in lines:
        put_bytes(f"{fitting(line, sys.stdout)}\n".encode(sys.stdout.encoding, "backslashreplace"))
        count += 1
    return count

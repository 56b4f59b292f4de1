"""agentrun items: one line for each item."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


# Longest, most, oldest first, because people look for those. Items that never ran come last.
_SORTS: dict[str, Callable[[ItemView], Any]] = {
    "duration": lambda item: (-item.seconds, item.index),
    "attempts": lambda item: (-item.attempts, item.index),
    "age": lambda item: (not item.ended_at, item.ended_at, item.index),
    "index": lambda item: item.index,
    "key": lambda item: (item.key, item.index),
    "cost": lambda item: (item.cost is None, -(item.cost or 0), item.index),
}


def items(
    job: flags.KnownJob,
    state: Annotated[
        list[State] | None,
        typer.Option("--state", metavar="STATE", help="done, failed, skipped, waiting, running, pending; repeatable."),
    ] = None,
    sort: Annotated[
        Order, typer.Option("--sort", metavar="BY", help="index, key; longest duration, most attempts, cost or age.")
    ] = Order.index,
    reverse: Annotated[bool, typer.Option("--reverse", help="Reverse the order.")] = False,
    agent_version: Annotated[
        str | None, typer.Option("--agent-version", metavar="V", help="Only results of this version of the agent.")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Only items that are done with an empty output.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most N lines.")] = None,
    as_json: flags.AsJson = False,
    state_dir: flags.StateDir = None,
    store: flags.Store = None,
) -> None:
    """List the items of a job, with state, duration, cost and cause.

    \b
    agentrun items triage
    agentrun items triage --state failed --state waiting
    agentrun items triage --sort cost --limit 10 --json
    """
    from agentrun_cli.asking.choosing import open_items, open_known
    from agentrun_cli.drawing.table import item_table
    from agentrun_cli.terminal import say

    known = open_known(job, state_dir, store)
    with open_items(known) as listing:
        found = listing.items({one.value for one in state} if state else None)
        if agent_version is not None:
            found = (item for item in found if item.agent.startswith(agent_version))
        if empty:
            found = (item for item in found if item.is_empty)
        shown = _sorted(found, sort.value, reverse=reverse, limit=limit)
        total, columns = len(listing), _columns(listing)
        count = _put_json(shown) if as_json else _put_lines(item_table(shown, total=total, columns=columns))
    if not count:
        say(f"{known.name}: {f'none of its {total:,} items match' if total else 'no items are on record'}")


def _columns(listing: Listing) -> list[str]:
    """The columns that are shown only where they differ from item to item."""
    wanted = (("cost", listing.usage.cost is not None), ("agent", len(listing.versions) > 1))
    return [name for name, is_wanted in wanted if is_wanted]


def _sorted(found: Iterable[ItemView], by: str, *, reverse: bool, limit: int | None) -> Iterable[ItemView]:
    """The items in the order asked for. In item order they are streamed; otherwise no more than `limit` are held."""
    from heapq import nlargest, nsmallest
    from itertools import islice

    if by == "index" and not reverse:
        return islice(found, limit)
    held = (item.brief() for item in found)
    if limit is not None:
        return (nlargest if reverse else nsmallest)(limit, held, key=_SORTS[by])
    return sorted(held, key=_SORTS[by], reverse=reverse)


def _put_json(shown: Iterable[ItemView]) -> int:
    import orjson

    from agentrun_cli.terminal import put_json_lines

    count = 0
    for item in shown:
        put_json_lines(orjson.dumps(item.as_json()) + b"\n")
        count += 1
    return count


def _put_lines(lines: Iterable[str]) -> int:
    """Not flushed at each line: there may be a million."""
    from agentrun_cli.terminal import put_line

    count = 0
    for line in lines:
        put_line(line)
        count += 1
    return count

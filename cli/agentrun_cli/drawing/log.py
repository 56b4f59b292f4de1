"""What happened to a job, in words, for `log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agentrun_cli.terminal import clean

if TYPE_CHECKING:
    from agentrun.views.jobs import HistoryEvent


def event_lines(events: Iterable[HistoryEvent]) -> Iterator[str]:
    """The events in words, oldest first; checkpoints that follow each other are one line."""
    folded: list[HistoryEvent] = []  # the first, the one before the last, the last
    count, is_under_way = 0, False

    def checkpoints(last: int) -> Iterator[str]:
        if count > 0:
            since = f" since {_time(folded[0].at)}" if count > 1 else ""
            what = "1 checkpoint" if count == 1 else f"{count:,} checkpoints"
            yield f"{_time(folded[last].at)}  {what}{since}, {_position(folded[last])}"

    for event in events:
        kind = event.event
        if kind == "checkpoint":
            folded = [folded[0], folded[-1], event] if folded else [event] * 3
            count += 1
            continue
        begins = kind in ("launch", "restore")
        # A launch's own first checkpoint is logged before the launch itself.
        count -= begins
        yield from checkpoints(-2 if begins else -1)
        cut_short = "; the previous launch was cut short" if begins and is_under_way else ""
        yield f"{_time(event.at)}  {_words(event)}{cut_short}"
        folded, count, is_under_way = [], 0, begins or (is_under_way and kind != "stop")
    yield from checkpoints(-1)


def _words(event: HistoryEvent) -> str:
    launch = f"launch {'?' if event.launch is None else event.launch}"
    match event.event:
        case "launch":
            return f"{launch} started run {clean(event.run_id or '?')}"
        case "restore":
            return f"{launch} resumed run {clean(event.run_id or '?')}, {_position(event)}"
        case "stop" if event.reason == "finished":
            return f"{launch} finished the run"
        case "stop":
            return f"{launch} stopped, {_position(event)}: {clean(event.reason or '')}"
        case "dropped":
            about = clean(event.key or event.message or "?")
            return f"{launch} dropped a message about {about}: {clean(event.reason or '')}"
        case "repair":
            return f"repaired: {clean(event.reason or '')}"
        case other:
            return f"{launch}: {clean(other)}"


def _position(event: HistoryEvent) -> str:
    last = event.last_completed
    if last is None or last < 0:
        return "no items settled yet"
    return f"all items up to {last} settled"


def _time(at: str) -> str:
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return clean(at, limit=19)

"""What happened to a job, in words, for `log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentrun_cli.terminal import clean


def event_lines(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The events in words, oldest first; checkpoints that follow each other are one line."""
    folded: list[Mapping[str, Any]] = []  # the first, the one before the last, the last
    count, is_under_way = 0, False

    def checkpoints(last: int) -> Iterator[str]:
        if count > 0:
            since = f" since {_time(folded[0].get('at'))}" if count > 1 else ""
            what = "1 checkpoint" if count == 1 else f"{count:,} checkpoints"
            yield f"{_time(folded[last].get('at'))}  {what}{since}, {_position(folded[last])}"

    for event in events:
        kind = event.get("event")
        if kind == "checkpoint":
            folded = [folded[0], folded[-1], event] if folded else [event] * 3
            count += 1
            continue
        begins = kind in ("launch", "restore")
        # A launch's own first checkpoint is logged before the launch itself.
        count -= begins
        yield from checkpoints(-2 if begins else -1)
        cut_short = "; the previous launch was cut short" if begins and is_under_way else ""
        yield f"{_time(event.get('at', ''))}  {_words(event)}{cut_short}"
        folded, count, is_under_way = [], 0, begins or (is_under_way and kind != "stop")
    yield from checkpoints(-1)


def _words(event: Mapping[str, Any]) -> str:
    launch = f"launch {event.get('launch', '?')}"
    match event.get("event"):
        case "launch":
            return f"{launch} started run {clean(event.get('run_id', '?'))}"
        case "restore":
            return f"{launch} resumed run {clean(event.get('run_id', '?'))}, {_position(event)}"
        case "stop" if event.get("reason") == "finished":
            return f"{launch} finished the run"
        case "stop":
            return f"{launch} stopped, {_position(event)}: {clean(event.get('reason', ''))}"
        case "dropped":
            about = clean(event.get("key") or event.get("message") or "?")
            return f"{launch} dropped a message about {about}: {clean(event.get('reason', ''))}"
        case other:
            return f"{launch}: {clean(other)}"


def _position(event: Mapping[str, Any]) -> str:
    last = event.get("last_completed")
    if not isinstance(last, int) or last < 0:
        return "no items settled yet"
    return f"all items up to {last} settled"


def _time(at: object) -> str:
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(str(at)).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return clean(at, limit=19)

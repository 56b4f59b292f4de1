"""What happened to a job, in words, for `log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agentrun_cli.terminal import clean

if TYPE_CHECKING:
    from agentrun.views.jobs import HistoryEvent


def event_lines(events: Iterable[HistoryEvent]) -> Iterator[str]:
    """The events in words, oldest first; checkpoints that follow each other are one line, whatever the speed was."""
    words = EventLines()
    for event in events:
        yield from words.add(event)
    yield from words.flush()


class EventLines:
    """Events in words, as they come. Checkpoints and changes of speed, of which there may be one every second of a
    night, are held back until something else happens, or until `flush`."""

    def __init__(self) -> None:
        self._speeds: list[HistoryEvent] = []  # the first and the last
        self._speed_count = 0
        self._folded: list[HistoryEvent] = []  # the first, the one before the last, the last
        self._count = 0
        self._is_under_way = False

    def add(self, event: HistoryEvent) -> Iterator[str]:
        kind = event.event
        if kind == "checkpoint":
            self._folded = [self._folded[0], self._folded[-1], event] if self._folded else [event] * 3
            self._count += 1
            return
        if kind == "speed":
            self._speeds = [*self._speeds[:1], event]
            self._speed_count += 1
            return
        begins = kind in ("launch", "restore")
        # A launch's own first checkpoint is logged before the launch itself.
        self._count -= begins
        yield from self._held_back(-2 if begins else -1)
        cut_short = "; the previous launch was cut short" if begins and self._is_under_way else ""
        yield f"{_time(event.at)}  {_words(event)}{cut_short}"
        self._is_under_way = begins or (self._is_under_way and kind != "stop")

    def flush(self) -> Iterator[str]:
        """What was held back."""
        yield from self._held_back(-1)

    def _held_back(self, last: int) -> Iterator[str]:
        yield from self._changes_of_speed()
        yield from self._checkpoints(last)

    def _changes_of_speed(self) -> Iterator[str]:
        speeds, count = self._speeds, self._speed_count
        self._speeds, self._speed_count = [], 0
        if count == 1:
            yield f"{_time(speeds[0].at)}  {_words(speeds[0])}"
        elif count:
            changes = f"{count:,} changes since {_time(speeds[0].at)}, from {clean(speeds[0].reason or '')}"
            yield f"{_time(speeds[-1].at)}  {_words(speeds[-1])}; {changes}"

    def _checkpoints(self, last: int) -> Iterator[str]:
        folded, count = self._folded, self._count
        self._folded, self._count = [], 0
        if count > 0:
            since = f" since {_time(folded[0].at)}" if count > 1 else ""
            what = "1 checkpoint" if count == 1 else f"{count:,} checkpoints"
            yield f"{_time(folded[last].at)}  {what}{since}, {_position(folded[last])}"


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
        case "pause":
            return f"{launch} paused until {_time(event.until or '')}: {clean(event.reason or '', limit=300)}"
        case "continue":
            return f"{launch} continued"
        case "speed":
            return f"{launch}: speed: {clean(event.reason or '')}"
        case "dropped":
            about = clean(event.key or event.message or "?")
            return f"{launch} dropped a message about {about}: {clean(event.reason or '')}"
        case "repair":
            return f"repaired: {clean(event.reason or '')}"
        case "export":
            return f"exported: {clean(event.reason or '')}"
        case "import":
            return f"imported: {clean(event.reason or '')}"
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

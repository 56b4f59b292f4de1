"""One frame of the live view: a pure function of what there is to show, the time, and the size of the terminal.

━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━──────────────────  72 %  5m left
140 of 200 · 4 failed · 2 waiting · 11.3/min · $1.64 of $3.00 · 12m04s
5 of 8 at a time: until more items have finished, …
   7s  invoices/2026-0127.txt  check
   3s  invoices/2026-0131.txt  extract
       and 6 more
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrun.money.usage import format_cost
from agentrun.values.units import format_duration, rate_words
from agentrun_cli.drawing.cells import cell_len, cut_left, cut_right, padded
from agentrun_cli.drawing.pace import left_words
from agentrun_cli.terminal import clean

FULL, EMPTY = "━", "─"
OTHER_LINES = 6
"""What the items in flight leave of the terminal's height: to the rest of the frame, and to the lines above it."""
LEAST_BAR, LEAST_BAR_WITH_TIME = 4, 10
AGE_CELLS = 5
LEAST_CELLS_FOR_DOING = 20


@dataclass(frozen=True, slots=True)
class Flight:
    """An item in flight. Its key and what it is doing are the user's words, and may hold anything."""

    key: str
    began: float
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Halt:
    """No new items are started."""

    at: float
    grace_seconds: float | None = None
    """How long the items in flight may take; None if they are finished, however long that takes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A launch at one moment. Times are those of one monotonic clock."""

    total: int
    done: int
    failed: int = 0
    skipped: int = 0
    waiting: int = 0
    began: float = 0.0
    per_second: float | None = None
    seconds_left: float | None = None
    cost: float | None = None
    budget: float | None = None
    concurrency: int = 1
    slowed: str = ""
    """How fast it goes, if a server has asked to slow down."""
    held_back: str = ""
    """Why fewer items are in flight than may be."""
    paused: str = ""
    """Until when it is paused, and why."""
    halt: Halt | None = None
    in_flight: Sequence[Flight] = ()
    """The oldest first."""


def draw_frame(scene: Scene, now: float, width: int, height: int) -> list[str]:
    """Lines of at most `width` cells, fewer than `height`; nothing in them is a control code."""
    lines = [_bar(scene, width), _counts(scene, now, width)]
    if states := _states(scene, now):
        lines.append(next((one for one in states if cell_len(one) <= width), cut_right(states[-1], width)))
    lines += _flights(scene.in_flight, now, width, height - OTHER_LINES)
    return lines[: max(height - 1, 1)]


def _bar(scene: Scene, width: int) -> str:
    settled, total = scene.done + scene.failed + scene.skipped, max(scene.total, 1)
    # Rounded down: it is full, and 100 %, only when everything is settled.
    percent = f"  {100 * settled // total:>2} %"
    left = f"  {left_words(scene.seconds_left)}" if scene.seconds_left is not None and not scene.halt else ""
    if width - len(percent + left) < LEAST_BAR_WITH_TIME:
        left = ""
    if width - len(percent) < LEAST_BAR:
        percent = ""
    cells = width - len(percent + left)
    full = min(cells * settled // total, cells)
    return FULL * full + EMPTY * (cells - full) + percent + left


def count_words(scene: Scene, *, done: str = "") -> Iterator[str]:
    """How many items are done, and how many not, in the order of what matters most."""
    yield f"{scene.done:,} of {scene.total:,}{done}"
    for count, word in ((scene.failed, "failed"), (scene.skipped, "skipped"), (scene.waiting, "waiting")):
        if count:
            yield f"{count:,} {word}"
    if scene.per_second is not None:
        yield rate_words(scene.per_second)


def cost_words(scene: Scene) -> Iterator[str]:
    if scene.cost or (scene.budget is not None and scene.cost is not None):
        yield format_cost(scene.cost) + (f" of {format_cost(scene.budget)}" if scene.budget is not None else "")


def _counts(scene: Scene, now: float, width: int) -> str:
    words = [*count_words(scene), *cost_words(scene), format_duration(int(now - scene.began))]
    while len(words) > 1 and cell_len(" · ".join(words)) > width:
        words.pop()
    return cut_right(" · ".join(words), width)


def _states(scene: Scene, now: float) -> list[str]:
    """Why it does not run at full speed, in more words and in fewer; empty if it does."""
    count = len(scene.in_flight)
    if scene.paused:
        return [scene.paused]
    if scene.halt is not None:
        if not count:
            return ["stopping"]
        if scene.halt.grace_seconds is None:
            return [f"stopping: {count:,} in flight, finished first", f"stopping: {count:,} left"]
        left = format_duration(int(max(scene.halt.at + scene.halt.grace_seconds - now, 0.0)))
        return [f"stopping: {count:,} in flight, {left} of grace left", f"stopping: {left} left"]
    if scene.slowed:
        return [f"{scene.slowed}: the server asks us to slow down", f"slowed: {scene.slowed}", scene.slowed]
    if scene.held_back and count < scene.concurrency:
        return [f"{count:,} of {scene.concurrency:,} at a time: {clean(scene.held_back)}"]
    return []


def _flights(flights: Sequence[Flight], now: float, width: int, most: int) -> list[str]:
    """A line for each item in flight, at most `most` of them."""
    if not flights or most < 1:
        return []
    if most == 1 < len(flights):
        oldest = _age(flights[0], now).strip()
        return [cut_right(f"{oldest:>{AGE_CELLS}}  the oldest of {len(flights):,} in flight", width)]
    shown = flights if len(flights) <= most else flights[: most - 1]
    room = width - AGE_CELLS - 2
    keys = [clean(one.key, limit=2000) for one in shown]
    doing = [clean(one.doing).strip() if room >= LEAST_CELLS_FOR_DOING else "" for one in shown]
    longest = max(map(cell_len, doing))
    # What an item is doing is told in full if its key still gets half of the line.
    for_key = max(room - 2 - longest, room // 2) if longest else room
    column = min(max(map(cell_len, keys)), for_key)
    lines = []
    for flight, key, what in zip(shown, keys, doing, strict=True):
        line = f"{_age(flight, now)}  {padded(cut_left(key, column), column)}  {what}"
        lines.append(cut_right(line.rstrip(), width))
    if len(shown) < len(flights):
        lines.append(cut_right(f"{'':{AGE_CELLS + 2}}and {len(flights) - len(shown):,} more", width))
    return lines


def _age(flight: Flight, now: float) -> str:
    return f"{format_duration(int(max(now - flight.began, 0))):>{AGE_CELLS}}"

"""The plots of a report, drawn by hand as SVG. Pure.

A plot is 430 units wide, so that its words can be read on a phone. Colours are classes, whose variables the page sets
for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from agentrun.money.usage import format_cost
from agentrun.report.report import Curve, Night
from agentrun.report.tally import histogram, quantile
from agentrun.values.clock import local_time
from agentrun.values.units import format_duration

WIDTH, HEIGHT = 430, 170
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 20, 26
_BASE = HEIGHT - BOTTOM
_MARKS_SHOWN = 40
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_TICKS = 5


@dataclass(slots=True)
class Plot:
    """Axes, and what is drawn between them."""

    x0: float
    x1: float
    top: float
    """The highest value that must fit."""
    label: Callable[[float], str]
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ticks = ticks_to(self.top)
        self.top = ticks[-1]
        for tick in ticks:
            y = self.y(tick)
            self.parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            self.text(LEFT - 6, y + 4, self.label(tick), anchor="end")

    def x(self, value: float) -> float:
        share = (value - self.x0) / ((self.x1 - self.x0) or 1)
        return round(LEFT + min(max(share, 0), 1) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_BASE - min(value / self.top, 1) * (_BASE - TOP), 1)

    def text(self, x: float, y: float, words: str, *, anchor: str = "", kind: str = "tick") -> None:
        at = f' text-anchor="{anchor}"' if anchor else ""
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}"{at}>{escape(words)}</text>')

    def band(self, begin: float, end: float) -> None:
        """A stretch of time in which nothing was in flight."""
        a, b = self.x(begin), self.x(end)
        self.parts.append(f'<rect class="idle" x="{a}" y="{TOP}" width="{b - a:.1f}" height="{_BASE - TOP}"/>')

    def curve(self, curve: Curve, kind: str, *, area: bool = True, stairs: bool = True) -> None:
        """A value over time. Where it jumped because something was lost, the jump is drawn as a step of its own."""
        points = list(self._points(curve, stairs=stairs))
        line = "L".join(f"{x:g} {y:g}" for x, y in points)
        if area:
            self.parts.append(f'<path class="area {kind}" d="M{points[0][0]:g} {_BASE}L{line}V{_BASE}Z"/>')
        self.parts.append(f'<path class="line {kind}" d="M{line}"/>')
        for n, lost in sorted(curve.jumps.items()):
            x = self._edge(n + 1, len(curve.values))
            high = curve.values[n]
            self.parts.append(f'<path class="line lost" d="M{x:g} {self.y(high - lost)}V{self.y(high)}"/>')

    def _edge(self, n: int, slices: int) -> float:
        return self.x(self.x0 + (self.x1 - self.x0) * n / slices)

    def _points(self, curve: Curve, *, stairs: bool) -> Iterator[tuple[float, float]]:
        """One point a slice at most: a stretch in which nothing changes has only its ends."""
        values = curve.values
        if not stairs:
            values = [*values, values[-1]]
        last: float | None = None
        flat: tuple[float, float] | None = None
        for n, value in enumerate(values):
            edge = n + 1 if stairs else n
            point = self._edge(edge, len(curve.values)), self.y(value)
            if n == 0 and stairs:
                yield self.x(self.x0), self.y(value if len(values) == 1 else 0 if value < 1 else value)
            jump = curve.jumps.get(n, 0.0)
            if point[1] == last and not jump:
                flat = point
                continue
            if flat is not None:
                yield flat
                flat = None
            if jump:
                yield point[0], self.y(value - jump)
            yield point
            last = point[1]
        if flat is not None:
            yield flat

    def mark(self, at: float, words: str, kind: str) -> None:
        """A vertical line, with words above it."""
        x = self.x(at)
        self.parts.append(f'<path class="mark {kind}" d="M{x} {TOP}V{_BASE}"/>')
        if words:
            is_right = x > (LEFT + WIDTH) * 0.6
            self.text(
                x - 4 if is_right else x + 4, TOP - 6, words, anchor="end" if is_right else "", kind=f"note {kind}"
            )

    def level(self, value: float, words: str, *, right: bool = True) -> None:
        """A limit: a horizontal line, with words on it."""
        y = self.y(value)
        self.parts.append(f'<path class="mark limit" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        if right:
            self.text(WIDTH - RIGHT, y - 5, words, anchor="end", kind="note limit")
        else:
            self.text(LEFT + 4, y - 5, words, kind="note limit")

    def times(self) -> None:
        """The time axis, with a tick at round times of day."""
        for at, words in clock_ticks(self.x0, self.x1):
            x = self.x(at)
            self.parts.append(f'<path class="tick-mark" d="M{x} {_BASE}v4"/>')
            half = 3.4 * len(words)
            anchor = "start" if x - half < LEFT - 30 else "end" if x + half > WIDTH else "middle"
            self.text(x, HEIGHT - 8, words, anchor=anchor)

    def bar(self, low: float, high: float, count: int, words: str) -> None:
        a, b, y = self.x(low), self.x(high), self.y(count)
        size = f'x="{a + 0.7:.1f}" y="{y}" width="{max(b - a - 1.4, 1):.1f}" height="{_BASE - y:.1f}" rx="1.5"'
        self.parts.append(f'<rect class="bar" {size}><title>{escape(words)}</title></rect>')

    def svg(self, words: str) -> str:
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}">{"".join(self.parts)}</svg>'
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its name, and what it shows in words."""

    name: str
    words: str
    svg: str


def figures(night: Night, *, total: int, budget: float | None) -> list[Figure]:
    """The night as plots; without a cost there are three."""
    found = [_settled(night, total), _in_flight(night)]
    if night.seconds:
        found.append(_seconds(night.seconds))
    if night.cost is not None:
        found.append(_cost(night, night.cost, budget))
    return found


def _timed(night: Night, top: float, label: Callable[[float], str]) -> Plot:
    plot = Plot(night.began, night.ended, top, label)
    for begin, end in night.idle:
        plot.band(begin, end)
    return plot


def _finish(plot: Plot, night: Night, words: str, *, named: bool = False) -> str:
    for n, at in enumerate(night.crashes[:_MARKS_SHOWN]):
        plot.mark(at, "crash" if named and not n else "", "crash")
    plot.times()
    return plot.svg(words)


def _settled(night: Night, total: int) -> Figure:
    failed = f", {night.failed.last:,.0f} of them failed" if night.failed.last else ""
    words = f"{night.settled.last:,.0f} of {total:,}{failed}"
    plot = _timed(night, max(total, night.settled.most), _count_label)
    plot.curve(night.settled, "good")
    if night.failed.most:
        plot.curve(night.failed, "bad", area=False)
    return Figure("Items settled", words, _finish(plot, night, f"Items settled over time: {words}", named=True))


def _in_flight(night: Night) -> Figure:
    limit = night.concurrency
    most = night.in_flight.most
    top = max(most, limit) if limit is not None and most <= limit * 1.05 else most
    words = f"at most {most:,.1f}".removesuffix(".0") + " at a time"
    plot = _timed(night, top, _count_label)
    plot.curve(night.in_flight, "busy", stairs=False)
    if limit is not None and top >= limit >= most / 1.05:
        plot.level(limit, f"-j {limit}")
    return Figure("In flight", words, _finish(plot, night, f"Attempts in flight over time: {words}"))


def _seconds(seconds: Sequence[float]) -> Figure:
    bars = histogram(seconds)
    half, most = quantile(seconds, 0.5), quantile(seconds, 0.95)
    words = f"half within {_short(half)}, 95 % within {_short(most)}"
    plot = Plot(bars[0][0], bars[-1][1], max(count for _, _, count in bars), _count_label)
    for low, high, count in bars:
        if count:
            items = f"{count:,} {'item' if count == 1 else 'items'}"
            plot.bar(low, high, count, f"{items}: {_short(2**low)} to {_short(2**high)}")
    plot.mark(math.log2(max(half, 1e-3)), f"half: {_short(half)}", "mid")
    first, last = round(bars[0][0]), round(bars[-1][1])
    step = max(1, math.ceil((last - first) / 7))
    for exponent in range(first, last + 1, step):
        x = plot.x(exponent)
        plot.text(x, HEIGHT - 8, _round(2.0**exponent), anchor="end" if x > WIDTH - 25 else "middle")
    return Figure("Seconds per item", f"{words}; each tick is twice the last", plot.svg(f"Seconds per item: {words}"))


def _cost(night: Night, cost: Curve, budget: float | None) -> Figure:
    total = cost.last
    is_near = budget is not None and budget <= max(4 * total, 1e-9)
    lost = sum(cost.jumps.values())
    words = format_cost(total) + (f" of {format_cost(budget)}" if budget is not None else "")
    words += f", {format_cost(lost)} of it lost to attempts that were cut off" if lost > 1e-6 else ""
    plot = _timed(night, max(total, budget if is_near and budget is not None else 0.0), _money_label)
    plot.curve(cost, "cost")
    if is_near and budget is not None:
        plot.level(budget, f"budget {format_cost(budget)}", right=False)
    return Figure("Cost", words, _finish(plot, night, f"Cost over time: {words}"))


# ---- ticks


def ticks_to(top: float) -> list[float]:
    """Round numbers from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10.0 ** math.floor(math.log10(top / 4))
    step *= next(many for many in (1, 2, 2.5, 5, 10) if top / (step * many) <= 4.001)
    return [n * step for n in range(math.ceil(round(top / step, 6)) + 1)]


def clock_ticks(began: float, ended: float) -> list[tuple[float, str]]:
    """Round local times from one time to another, each with its words."""
    span = ended - began
    step = next((one for one in _STEPS if span / one <= _MOST_TICKS), 0) or 86400 * math.ceil(
        span / 86400 / _MOST_TICKS
    )
    start = local_time(began)
    offset = (start.utcoffset() or start - start).total_seconds()
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%a %d"
    first = math.ceil((began + offset) / step) * step - offset
    found = [first + n * step for n in range(_MOST_TICKS + 2) if first + n * step <= ended]
    # Too short for two round times: its ends.
    times = found if len(found) > 1 else [began, ended]
    form = form if len(found) > 1 else "%H:%M:%S"
    return [(at, local_time(at).strftime(form)) for at in times]


def _count_label(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k" if value >= 10_000 else f"{value:g}"


def _money_label(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else f"${value:.4g}"


def _round(seconds: float) -> str:
    """A time for an axis, where there is little room: 4s, 17m, 1.1h."""
    if seconds < 60:
        return _short(seconds)
    return f"{seconds / 60:.0f}m" if seconds < 3600 else f"{seconds / 3600:.2g}h"


def _short(seconds: float) -> str:
    """A time of two digits at most: 31ms, 0.5s, 2m08s."""
    if seconds >= 1:
        return format_duration(seconds)
    return f"{seconds * 1000:.0f}ms" if seconds < 0.1 else f"{seconds:.2g}s"

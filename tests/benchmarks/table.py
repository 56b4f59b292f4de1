"""The table: a row a figure, Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

Form = Callable[[float], str]


def as_time(seconds: float) -> str:
    if seconds < 0.01:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def as_rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s"


def as_bytes(count: float) -> str:
    if count < 1024:
        return f"{count:.0f} B"
    return f"{count / 1024:.1f} KiB" if count < 2**20 else f"{count / 1e6:.0f} MB"


def as_ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Spread:
    """Values of some rounds."""

    values: Sequence[float]
    form: Form = as_ratio

    @property
    def middle(self) -> float:
        return median(self.values)

    def __str__(self) -> str:
        if not self.values:
            return "-"
        if len(self.values) == 1:
            return self.form(self.values[0])
        return f"{self.form(self.middle)} ({self.form(min(self.values))} … {self.form(max(self.values))})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Round by round: what disturbs the machine for a while disturbs both."""
    return Spread([one / other for one, other in zip(ours, theirs, strict=False)])


@dataclass(frozen=True)
class Row:
    what: str
    ours: Spread | None = None
    against: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    must: str = ""
    """Empty: for information."""
    ok: bool | None = None
    """None: there is nothing to be judged, `note` says why."""
    note: str = ""

    @property
    def verdict(self) -> str:
        if not self.must:
            return self.note
        word = {True: "ok", False: "**not reached**", None: "not judged"}[self.ok]
        return f"{word}: {self.note}" if self.note else word


def at_most(what: str, ours: Spread, against: str, theirs: Spread, most: float, must: str, note: str = "") -> Row:
    """The usual row: our time, divided by another's, is at most `most`."""
    ratio = ratios(ours.values, theirs.values)
    return Row(what, ours, against, theirs, ratio, must, ratio.middle <= most, note)


def missing(what: str, against: str, must: str, reason: str, ours: Spread | None = None) -> Row:
    return Row(what, ours, against, must=must, note=reason)


HEAD = ("figure", "agentrun", "against", "theirs", "ratio", "must reach", "")


def render(rows: Iterable[Row]) -> str:
    lines: list[Sequence[str]] = [HEAD]
    for row in rows:
        spreads = ["" if spread is None else str(spread) for spread in (row.ours, row.theirs, row.ratio)]
        lines.append((row.what, spreads[0], row.against, spreads[1], spreads[2], row.must, row.verdict))
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table whose first line is its head."""
    head, *rows = lines
    every = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in every)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())

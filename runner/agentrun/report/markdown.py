"""A report as Markdown, for mail, an issue or a chat. Users' data stands in code, where nothing is markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentrun.money.usage import format_cost
from agentrun.report.plots import figures
from agentrun.report.report import Curve, Group, Night, Outlier, Report
from agentrun.report.tally import histogram
from agentrun.values.clock import local_time
from agentrun.values.text import clean
from agentrun.values.units import format_duration

MARK = "<!-- agentrun report -->"
"""By which a file is known as a report, which may be replaced."""
MOST_BYTES = 200 * 1024
_ITEMS_SHOWN = (50, 20, 8, 3, 0)
_BARS, _IDLE = "▁▂▃▄▅▆▇█", "·"
_COLUMNS = 48


def markdown_page(report: Report) -> str:
    """The report; where it would be too large, with fewer of the items of each group."""
    pages = ("\n".join(_lines(report, items=most)) + "\n" for most in _ITEMS_SHOWN)
    return next((page for page in pages if len(page.encode()) <= MOST_BYTES), "") or "\n".join(_lines(report, items=0))


def code(value: object, limit: int = 300) -> str:
    """Users' data as a code span: whatever it says, it is neither markup nor a mention nor a link."""
    text = clean(value, limit=limit).strip() or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def words(value: object, limit: int = 600) -> str:
    """Text of ours in which users' data may stand: what could be markup is escaped."""
    text = re.sub(r"([\\`*_{}\[\]<>#|~&$@]|:(?=//)|^[-+])", r"\\\1", clean(value, limit=limit))
    # "1." begins a list. Of that only the dot can be escaped: a backslash before a digit is shown.
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", text)


def _lines(report: Report, *, items: int) -> Iterator[str]:
    view = report.view
    yield from (MARK, f"# {words(view.job)}: {report.verdict}", "", words(report.words), "")
    yield from _table(["", "", ""], [[one.name, f"**{one.value}**", one.note] for one in report.tiles])
    if report.note:
        yield from ("", words(report.note))
    yield from ("", "## What to do next", "")
    for n, one in enumerate(report.advice, 1):
        yield f"{n}. {words(one.words)}"
        yield from _command(one.command, indent="   ")
    if not report.advice:
        yield "Nothing: it is all done."
    yield from ("", "## Failures", "")
    causes = f"{report.causes:,} {'cause' if report.causes == 1 else 'causes'}"
    yield f"{report.failed:,} failed, from {causes}." if report.failed else "No item has failed."
    for group in report.failures:
        yield from _group(group, items)
    if report.causes > len(report.failures):
        yield from ("", f"And {report.causes - len(report.failures):,} more causes.")
    yield from ("", "## Questions", "")
    waits = "waits" if report.waiting == 1 else "wait"
    yield f"{report.waiting:,} {waits} for an answer." if report.waiting else "Nobody is asked anything."
    for group in report.questions:
        yield from _group(group, items)
    yield from _command(report.answer if report.waiting else "")
    yield from ("", "## The night", "", *_night(report))
    yield from ("", "## Slowest and most expensive items", "")
    yield from _outliers(report)
    yield from ("", "## For the record", "")
    yield from (f"- {name}: {words(value)}" for name, value in report.facts)
    yield ""
    rows = [
        [str(one.number), _clock(one.began), _clock(one.ended), f"{one.settled:,}", words(one.how, 300)]
        for one in report.launches[-60:]
    ]
    yield from _table(["launch", "from", "to", "settled", "how it ended"], rows)
    where = f" The commands work in {code(report.folder)}." if report.folder else ""
    yield from ("", f"Written by agentrun at {_clock(report.made_at)}.{where}")


def _group(group: Group, items: int) -> Iterator[str]:
    many = f"{group.count:,} {'item' if group.count == 1 else 'items'}"
    yield from ("", f"### {many}: {code(group.text, 500)}", "")
    if group.where:
        yield from (f"{code(group.where)}{f': {code(group.code, 160)}' if group.code else ''}", "")
    for one in group.items[:items]:
        yield f"- {code(one.key, 200)}{f' {code(one.note)}' if one.note else ''}"
    if (left := group.count - len(group.items[:items])) > 0:
        yield f"- and {left:,} more"
    yield from _command(group.command)


def _command(command: str, *, indent: str = "") -> Iterator[str]:
    if command:
        fence = "`" * max(3, max((len(run) for run in re.findall("`+", command)), default=0) + 1)
        yield from ("", f"{indent}{fence}sh", f"{indent}{command}", f"{indent}{fence}", "")


def _night(report: Report) -> Iterator[str]:
    night = report.night
    rows = []
    curves: dict[str, Sequence[float]] = {"Items settled": night.settled.values, "In flight": night.in_flight.values}
    if night.cost is not None:
        curves["Cost"] = night.cost.values
    for figure in figures(night, total=report.view.total, budget=report.view.budget):
        if figure.name in curves:
            drawn = sparkline(Curve(curves[figure.name]), night, is_level=figure.name == "In flight")
        else:
            counts = [count for _, _, count in histogram(night.seconds)]
            drawn = "".join(_bar(count, max(counts)) for count in counts)
        rows.append([figure.name, f"`{drawn}`", words(figure.words)])
    yield from _table(["", f"{_clock(night.began)} to {_clock(night.ended)}", ""], rows)
    if night.idle:
        yield from ("", f"`{_IDLE}`: nothing was in flight.")


def sparkline(curve: Curve, night: Night, *, is_level: bool = False) -> str:
    """A curve as a line of text, with dots where nothing was in flight."""
    values, width = curve.values, night.span / _COLUMNS
    drawn = ""
    for column in range(_COLUMNS):
        first, last = column * len(values) // _COLUMNS, (column + 1) * len(values) // _COLUMNS
        middle = night.began + (column + 0.5) * width
        part = values[first : max(last, first + 1)]
        value = sum(part) / len(part) if is_level else part[-1]
        is_idle = any(begin <= middle < end for begin, end in night.idle)
        drawn += _IDLE if is_idle else _bar(value, curve.most)
    return drawn


def _bar(value: float, most: float) -> str:
    return _BARS[min(int(value / most * len(_BARS)), len(_BARS) - 1)] if most > 0 and value > 0 else _BARS[0]


def _outliers(report: Report) -> Iterator[str]:
    if not report.slowest:
        yield "No item has run yet."
        return
    yield from _table(
        ["slowest", "took", "attempts"], [_row(one, format_duration(one.value), one.attempts) for one in report.slowest]
    )
    if report.most_expensive:
        rows = [_row(one, format_cost(one.value), one.tokens) for one in report.most_expensive]
        yield from ("", *_table(["most expensive", "cost", "tokens"], rows))


def _row(one: Outlier, value: str, number: int) -> list[str]:
    state = f" {one.state}" if one.state != "done" else ""
    return [f"{code(one.key, 120)}{state}", value, f"{number:,}"]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells are Markdown. A bar in code must be escaped too; elsewhere it is already."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)[|]", r"\\|", text)


def _clock(at: float) -> str:
    return f"{local_time(at):%a %H:%M}"

"""A report as one HTML file: no script, nothing fetched, at most 200 KiB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from agentrun.money.usage import format_cost
from agentrun.report.plots import figures
from agentrun.report.report import Advice, Group, LaunchFacts, Outlier, Report
from agentrun.values.clock import local_time
from agentrun.values.text import clean
from agentrun.values.units import format_duration
from agentrun.views.jobs import JobView

STYLE = Path(__file__).with_name("page.css")
MOST_BYTES = 200 * 1024
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MARK = '<meta name="generator" content="agentrun report">'
"""By which a file is known as a report, which may be replaced."""
_ITEMS_SHOWN = (50, 20, 8, 3, 0)
_OPEN_UP_TO = 6
_LAUNCHES_SHOWN = 60
_PARTS = (("done", "good"), ("skipped", "dim"), ("waiting", "warn"), ("failed", "bad"))


def html_page(report: Report) -> str:
    """The page; where it would be too large, with fewer of the items of each group."""
    pages = (_page(report, items=most) for most in _ITEMS_SHOWN)
    return next((page for page in pages if len(page.encode()) <= MOST_BYTES), "") or _page(report, items=0, groups=5)


def text(value: object, limit: int = 300) -> str:
    """Users' data, as one line that is neither markup nor control codes."""
    return escape(clean(value, limit=limit))


def _page(report: Report, *, items: int, groups: int = 20) -> str:
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">{MARK}'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex">'
        f'<link rel="icon" href="data:,"><title>{text(report.title)}</title>'
        f"<style>{STYLE.read_text()}</style></head>"
    )
    return f"{head}<body><main>{report_body(report, items=items, groups=groups)}</main></body></html>\n"


def report_body(report: Report, *, items: int = 50, groups: int = 20) -> str:
    """The report without the document around it, for a page with the style of `STYLE`; no inline styles."""
    sections = (
        _section("next", "What to do next", _advice(report.advice)),
        _section("failures", _failed_words(report), _failures(report, items, groups)),
        _section("questions", _asked_words(report), _questions(report, items, groups)),
        _section("night", "The night", _night(report)),
        _section("outliers", "Slowest and most expensive items", _outliers(report)),
        _section("record", "For the record", _record(report)),
    )
    made = local_time(report.made_at)
    foot = f"Written by agentrun at {made:%H:%M %Z on %A, %-d %B %Y}. Times are local to the machine that wrote it."
    where = f" The commands work in <code>{text(report.folder)}</code>." if report.folder else ""
    return f"{_head(report)}{''.join(sections)}<footer>{foot}{where}</footer>"


def progress_bar(view: JobView) -> str:
    """How far a run is: a part of the bar for each state, as SVG, which needs no inline styles."""
    parts, at = "", 0.0
    for kind, tone in _PARTS:
        if count := view.counts.get(kind):
            # Three of a hundred thousand can be seen, too.
            width = max(1000 * count / max(view.total, 1), 4.0)
            said = f"<title>{count:,} {kind}</title>"
            parts += f'<rect class="{tone}" x="{at:.1f}" width="{width:.1f}" height="1">{said}</rect>'
            at += width
    words = f"{view.counts.get('done', 0):,} of {view.total:,} done"
    return (
        f'<svg class="progress" viewBox="0 0 1000 1" preserveAspectRatio="none" role="img" aria-label="{words}">'
        f"{parts}</svg>"
    )


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>\n'


def _command(command: str) -> str:
    # Whole: a command that is cut does something else.
    return f'<code class="cmd">{escape(command)}</code>' if command else ""


def _head(report: Report) -> str:
    view, night = report.view, report.night
    began, ended = (local_time(at) for at in (night.began, night.ended))
    until = f"{ended:%H:%M}" if began.date() == ended.date() else f"{ended:%A, %H:%M}"
    when = f"{began:%A, %-d %B %Y, %H:%M} to {until}"
    tiles = "".join(
        f'<div class="{one.tone}"><dt>{escape(one.name)}</dt>'
        f"<dd>{escape(one.value)}<small>{escape(one.note)}</small></dd></div>"
        for one in report.tiles
    )
    odd = f'<p class="card odd">{text(report.note, 600)}</p>' if report.note else ""
    return (
        f'<header><p class="when">{when}</p>'
        f'<h1>{text(view.job)} <span class="pill {report.tone}">{escape(report.verdict)}</span></h1>'
        f'<p class="stands">{text(report.words, 600)}</p>'
        f"{progress_bar(view)}"
        f'<dl class="tiles" id="tiles">{tiles}</dl>{odd}</header>\n'
    )


def _advice(advice: Sequence[Advice]) -> str:
    if not advice:
        return "<p>Nothing: it is all done.</p>"
    rows = "".join(f'<li class="card">{text(one.words, 600)}{_command(one.command)}</li>' for one in advice)
    return f'<ol class="todo">{rows}</ol>'


def _failed_words(report: Report) -> str:
    causes = f"{report.causes:,} {'cause' if report.causes == 1 else 'causes'}"
    return f"{report.failed:,} failed, from {causes}" if report.failed else "Failures"


def _asked_words(report: Report) -> str:
    return (
        f"{report.waiting:,} {'waits' if report.waiting == 1 else 'wait'} for an answer"
        if report.waiting
        else "Questions"
    )


def _failures(report: Report, items: int, groups: int) -> str:
    if not report.failed:
        return '<p class="more">No item has failed.</p>'
    rows = "".join(_group(one, "", items) for one in report.failures[:groups])
    left = report.causes - len(report.failures[:groups])
    return rows + (f'<p class="more">and {left:,} more causes</p>' if left > 0 else "")


def _questions(report: Report, items: int, groups: int) -> str:
    if not report.waiting:
        return '<p class="more">Nobody is asked anything.</p>'
    rows = "".join(_group(one, "warn", items) for one in report.questions[:groups])
    return rows + _command(report.answer)


def _group(group: Group, tone: str, items: int) -> str:
    shown = "".join(
        f"<li>{text(one.key, 200)}{f' <span>{text(one.note)}</span>' if one.note else ''}</li>"
        for one in group.items[:items]
    )
    left = group.count - len(group.items[:items])
    shown += f'<li class="more">and {left:,} more</li>' if left > 0 else ""
    many = f"{group.count:,} {'item' if group.count == 1 else 'items'}"
    is_open = " open" if group.count <= _OPEN_UP_TO else ""
    where = f'<p class="where">{text(group.where)}{_code(group.code)}</p>' if group.where else ""
    listed = f'<details{is_open}><summary>{many}</summary><ul class="keys">{shown}</ul></details>'
    body = f'<p class="what">{text(group.text, 500)}</p>{where}{listed}{_command(group.command)}'
    return f'<article class="card group"><p class="n {tone}">{group.count:,}</p><div>{body}</div></article>'


def _code(line: str) -> str:
    return f": <code>{text(line, 160)}</code>" if line else ""


def _night(report: Report) -> str:
    night = report.night
    drawn = "".join(
        f"<figure><figcaption><b>{escape(one.name)}</b><span>{escape(one.words)}</span></figcaption>{one.svg}</figure>"
        for one in figures(night, total=report.view.total, budget=report.view.budget)
    )
    legend = ""
    if night.idle:
        legend += "<span><i></i>nothing was in flight</span>"
    if night.crashes:
        legend += '<span><i class="l"></i>crash</span>'
    if night.cost is not None and night.cost.jumps:
        legend += '<span><i class="s"></i>lost: spent, or perhaps spent, by attempts that were cut off</span>'
    return f'<div class="plots">{drawn}</div>' + (f'<p class="legend">{legend}</p>' if legend else "")


def _outliers(report: Report) -> str:
    if not report.slowest:
        return '<p class="more">No item has run yet.</p>'
    slow = _outlier_table(
        "Slowest", "took", report.slowest, lambda one: (format_duration(one.value), f"{one.attempts:,}")
    )
    if not report.most_expensive:
        return f'<div class="two">{slow}</div>'
    dear = _outlier_table(
        "Most expensive",
        "cost",
        report.most_expensive,
        lambda one: (format_cost(one.value), f"{one.tokens:,}"),
        "tokens",
    )
    return f'<div class="two">{slow}{dear}</div>'


def _outlier_table(
    title: str,
    value: str,
    rows: Sequence[Outlier],
    cells: Callable[[Outlier], tuple[str, str]],
    last: str = "attempts",
) -> str:
    body = [[text(one.key, 120) + _state(one), *map(escape, cells(one))] for one in rows]
    return f'<div class="card table"><h3>{title}</h3>{_table(["item", value, last], body, long=0)}</div>'


def _state(one: Outlier) -> str:
    return f' <span class="more">{escape(one.state)}</span>' if one.state != "done" else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, long: int) -> str:
    """`rows` are HTML. The column `long` has the words, which may be wrapped; the others are numbers."""

    def classes(n: int) -> str:
        return ' class="long"' if n == long else ' class="num"' if long == 0 else ""

    head = "".join(f"<th{classes(n)}>{escape(name)}</th>" for n, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{classes(n)}>{cell}</td>" for n, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _record(report: Report) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{text(value, 600)}</dd>" for name, value in report.facts)
    rows = list(_launch_rows(report.launches))
    left = len(report.launches) - len(rows)
    more = f'<p class="more">and {left:,} launches before these</p>' if left > 0 else ""
    table = _table(["launch", "from", "to", "settled", "how it ended"], rows, long=4)
    return f'<dl class="card facts">{facts}</dl><div class="card table">{table}{more}</div>'


def _launch_rows(launches: Sequence[LaunchFacts]) -> Iterator[list[str]]:
    days = {local_time(one.began).date() for one in launches}
    form = "%H:%M" if len(days) == 1 else "%a %H:%M"
    for one in launches[-_LAUNCHES_SHOWN:]:
        began, ended = (f"{local_time(at):{form}}" for at in (one.began, one.ended))
        yield [str(one.number), began, ended, f"{one.settled:,}", text(one.how)]

"""What all pages share: the document, the way around, the state of a job, and what was just done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from starlette.responses import HTMLResponse

from agentrun.report.advice import judge
from agentrun.report.page import progress_bar
from agentrun.values.clock import local_time, now_seconds
from agentrun.views.item import ItemView
from agentrun.views.jobs import JobView
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url

_TABS = (
    ("", "Overview"), ("items", "Items"), ("failures", "Failures"), ("review", "Review"), ("results", "Results"),
    ("report", "Report"),
)  # fmt: skip
_COUNTED = {"failures": "failed", "review": "waiting"}
TONES = {"done": "good", "failed": "bad", "waiting": "warn", "running": "busy"}


def document(
    title: str, body: Html, *, view: JobView | None = None, tab: str | None = None, status: int = 200
) -> HTMLResponse:
    """A whole page; with `view`, one of a job's."""
    return HTMLResponse(
        h(
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><meta name="robots" content="noindex">'
            '<title>{title}</title><link rel="stylesheet" href="/style.css">'
            # Nothing is shown before the keys work: what is typed too early would be taken for something else.
            '<script src="/page.js" defer blocking="render">'
            "</script></head>"
            '<body><a class="skip" href="#main">Skip to the content</a>'
            '<header class="top"><nav aria-label="Jobs"><a href="/" class="home">agentrun</a>{job}</nav>{tabs}</header>'
            '<main id="main">{body}</main></body></html>\n',
            title=f"{cut(title, 100)} · agentrun" if title else "agentrun",
            job=_job_link(view) if view is not None else NOTHING,
            tabs=h('<nav aria-label="This job" class="tabs" id="tabs">{tabs}</nav>', tabs=tabs(view, tab))
            if view is not None
            else NOTHING,
            body=body,
        ),
        status,
    )


def _job_link(view: JobView) -> Html:
    return h(' <span aria-hidden="true">/</span> <a href="{href}">{job}</a>', href=url("jobs", view.job), job=view.job)


def tabs(view: JobView, current: str | None) -> Html:
    """The pages of a job, with how many failed and wait."""

    def tab(name: str, words: str) -> Html:
        count = view.counts.get(_COUNTED.get(name, ""), 0)
        if name == "review":
            count -= view.posted.get("answer", 0)
        return h(
            '<a id="tab-{name}" href="{href}"{current}>{words}{count}</a>',
            name=name or "overview",
            href=url("jobs", view.job, *([name] if name else [])),
            current=h(' aria-current="page"') if name == current else NOTHING,
            words=words,
            count=h(' <span class="count {kind}">{count}</span>', kind=_COUNTED.get(name, ""), count=f"{count:,}")
            if count > 0
            else NOTHING,
        )

    return join(tab(*one) for one in _TABS)


def verdict(view: JobView) -> Html:
    """How a job stands, in a word or two."""
    words, tone = judge(view)
    if view.status in ("damaged", "untrusted", "unreachable"):
        words, tone = view.status, "bad"
    elif view.status == "new":
        words, tone = "not run yet", ""
    if view.figures_only:
        words = f"{words}, {'sealed' if view.sealed else 'not sealed'}"
    return h('<span class="pill {tone}">{words}</span>', tone=tone, words=words)


def state(view: ItemView) -> Html:
    """The state of an item."""
    return h('<span class="pill {tone}">{state}</span>', tone=TONES.get(view.state, ""), state=view.state)


def bar(view: JobView) -> Html:
    return Html(progress_bar(view))


def clock(seconds: float) -> Html:
    """A time of day; with the day, if it is not today's."""
    if not seconds:
        return NOTHING
    at, now = local_time(seconds), local_time(now_seconds())
    day = f"{at:%-d %b}" if at.year == now.year else f"{at:%-d %b %Y}"
    return h(
        '<time datetime="{iso}" title="{day}">{clock}</time>',
        iso=at.isoformat(),
        day=f"{at:%A, %-d %B %Y}",
        clock=f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%H:%M} on {day}",
    )


def note(words: object, tone: str = "") -> Html:
    """What was just done, or what is odd."""
    return h('<p class="card said {tone}" role="status">{words}</p>', tone=tone, words=words) if words else NOTHING


def facts(rows: Iterator[tuple[str, object]]) -> Html:
    """Names and values."""
    return h(
        '<dl class="card facts">{rows}</dl>',
        rows=join(h("<dt>{name}</dt><dd>{value}</dd>", name=name, value=value) for name, value in rows),
    )


def button(
    action: str, words: object, fields: Mapping[str, object] | None = None, *, name: str = "", tone: str = ""
) -> Html:
    """A form of one button, with hidden fields."""
    return h(
        '<form method="post" action="{action}">{fields}<button class="{tone}"{id}>{words}</button></form>',
        action=action,
        fields=hidden(fields or {}),
        tone=tone,
        id=h(' id="{name}"', name=name) if name else NOTHING,
        words=words,
    )


def hidden(fields: Mapping[str, object]) -> Html:
    return join(
        h('<input type="hidden" name="{name}" value="{value}">', name=name, value=value)
        for name, value in fields.items()
    )


def counted(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"

"""The items of a job: by state, by text, a hundred a page."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from agentrun.money.usage import format_cost
from agentrun.values.json import encode
from agentrun.values.units import format_duration
from agentrun.views.item import ItemView
from agentrun.views.listing import ItemsPage
from agentrun_cli.page.frame import document, note, state
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url
from agentrun_cli.page.visit import Visit

PAGE_ITEMS = 100
STATES = ("done", "failed", "waiting", "skipped", "pending", "running")
_TEXT_CHARACTERS, _BRIEF_CHARACTERS, _WORDS_CHARACTERS = 300, 240, 1000


def items_page(visit: Visit) -> Response:
    known, odd = visit.job(), list[str]()
    wanted, text = visit.query.get("state", ""), visit.query.get("text", "")[:_TEXT_CHARACTERS]
    states = {wanted} if wanted in STATES else None
    with visit.place.items(known, warn=odd.append) as listing:
        found = listing.page(states, text, start=visit.number("start"), count=PAGE_ITEMS)
    rows = join(_row(known.name, view) for view in found.items)
    table = h(
        '<div class="card table"><table class="items"><thead><tr><th class="num">#</th><th>item</th><th>state</th>'
        '<th class="num">took</th><th class="num">cost</th><th class="long">output, or why</th></tr></thead>'
        "<tbody>{rows}</tbody></table></div>",
        rows=rows,
    )
    body = h(
        "<h1>Items</h1>{odd}{search}{table}{pages}",
        odd=note(" ".join(odd)),
        search=search_form(url("jobs", known.name, "items"), text, state=wanted, states=STATES),
        table=table if found.items else h('<p class="card blank">No items match.</p>'),
        pages=pages(found, "jobs", known.name, "items", state=wanted, text=text),
    )
    return document(f"{known.name}: items", body, view=visit.place.view(known), tab="items")


def search_form(action: str, text: str, *, state: str = "", states: tuple[str, ...] = ()) -> Html:
    options = join(
        h(
            '<option value="{one}"{chosen}>{words}</option>',
            one=one,
            chosen=h(" selected") if one == state else NOTHING,
            words=one or "all states",
        )
        for one in ("", *states)
    )
    return h(
        '<form class="search" role="search" action="{action}">{select}<input type="search" name="text" value="{text}" '
        'aria-label="Text in keys, outputs and reasons" placeholder="text in keys, outputs and reasons">'
        "<button>Search</button></form>",
        action=action,
        select=h('<select name="state" aria-label="State">{options}</select>', options=options) if states else NOTHING,
        text=text,
    )


def pages(found: ItemsPage, *parts: str, **query: str) -> Html:
    """Which items these are, and the way to those before and after. `parts` and `query` are the page's own address."""
    first, last = found.start + 1, found.start + len(found.items)

    def link(words: str, start: int, rel: str) -> Html:
        href = url(*parts, **query, start=start or "")
        return h('<a class="button" rel="{rel}" href="{href}">{words}</a>', rel=rel, href=href, words=words)

    before = link("← back", max(found.start - PAGE_ITEMS, 0), "prev") if found.start else NOTHING
    after = link("next →", last, "next") if found.items and last < found.total else NOTHING
    which = f"{first:,} to {last:,} of {found.total:,}" if found.items else f"{found.total:,} match"
    return h(
        '<nav class="pages" aria-label="Pages">{before}<span>{which}</span>{after}</nav>',
        before=before,
        which=which,
        after=after,
    )


def _row(job: str, view: ItemView) -> Html:
    return h(
        '<tr><td class="num dim">{index}</td><td class="key"><a href="{href}">{key}</a></td><td>{state}</td>'
        '<td class="num">{took}</td>'
        '<td class="num">{cost}</td><td class="long dim"><div class="brief">{what}</div></td></tr>',
        index=f"{view.index:,}",
        href=url("jobs", job, "items", view.index),
        key=cut(view.key, 120),
        state=state(view),
        took=format_duration(view.seconds) if view.record is not None and view.seconds else "",
        cost=format_cost(view.cost) if view.cost else "",
        what=cut(brief(view), _BRIEF_CHARACTERS),
    )


def brief(view: ItemView) -> str:
    """What came of an item, or why not, in one line."""
    if view.question is not None:
        return view.question.text
    if view.cause:
        return view.cause
    if view.changed:
        return "changed since its last result"
    if view.state != "done" or view.record is None:
        return ""
    output = view.output
    if isinstance(output, dict):
        fields = ((name, value_words(value)) for name, value in islice(output.items(), _BRIEF_CHARACTERS))
        return " · ".join(f"{name}: {words}" for name, words in fields if words)
    return value_words(output)


def value_words(value: object) -> str:
    """How a value begins, in one line, for people: plain lists without JSON's signs, nothing for what is empty."""
    if value is None or value == [] or value == {}:
        return ""
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        shown = value[:_WORDS_CHARACTERS]
        value = ", ".join(one if isinstance(one, str) else encode(one).decode() for one in shown)
    text = value if isinstance(value, str) else encode(value).decode()
    return " ".join(text[:_WORDS_CHARACTERS].split())

"""The failed items by cause, each with what to do about them."""

from __future__ import annotations

from starlette.responses import Response

from agentrun.people.messages import posted_kinds
from agentrun.views.causes import CauseGroup, group_failures
from agentrun.views.finding import KnownJob
from agentrun_cli.page import said
from agentrun_cli.page.frame import button, counted, document, note
from agentrun_cli.page.item import skip_form
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url
from agentrun_cli.page.visit import Visit, items_mark

_KEYS_SHOWN, _OPEN_UP_TO, _GROUPS_SHOWN = 50, 6, 50


def failures_page(visit: Visit) -> Response:
    known, odd = visit.job(), list[str]()
    with visit.place.items(known, warn=odd.append) as listing:
        groups = group_failures(listing.items({"failed"}))
    posted = {key for key, kind in posted_kinds(known.store.inbox()).items() if kind in ("redo", "skip")}
    count = sum(group.count for group in groups)
    title = f"{counted(count, 'item')} failed, from {counted(len(groups), 'cause')}" if count else "No item has failed"
    left = len(groups) - _GROUPS_SHOWN
    body = h(
        "{said}{odd}<h1>{title}</h1>{groups}{more}",
        said=said.words_of(visit),
        odd=note(" ".join(odd)),
        title=title,
        groups=join(_group(known, group, sum(key in posted for key in group.keys)) for group in groups[:_GROUPS_SHOWN]),
        more=h('<p class="more">and {left} more causes</p>', left=f"{left:,}") if left > 0 else NOTHING,
    )
    return document(f"{known.name}: failures", body, view=visit.place.view(known), tab="failures")


def _group(known: KnownJob, group: CauseGroup, posted: int) -> Html:
    shown = zip(group.indexes[:_KEYS_SHOWN], group.keys, strict=False)
    rows = join(
        h('<li><a href="{href}">{key}</a></li>', href=url("jobs", known.name, "items", index), key=cut(key, 200))
        for index, key in shown
    )
    left = group.count - _KEYS_SHOWN
    code = group.raised.code if group.raised is not None else ""
    where = h(
        '<p class="where">{where}{code}</p>',
        where=group.where,
        code=h(": <code>{code}</code>", code=cut(code, 160)) if code else NOTHING,
    )
    return h(
        '<article class="card group"><p class="n" aria-hidden="true">{count}</p><div>'
        '<h2 class="what">{cause}</h2>{where}'
        '<details{open}><summary>{items}</summary><ul class="keys">{rows}{more}</ul></details>'
        "{actions}</div></article>",
        count=f"{group.count:,}",
        cause=cut(group.example, 500),
        where=where if group.where else NOTHING,
        open=h(" open") if group.count <= _OPEN_UP_TO else NOTHING,
        items=counted(group.count, "item"),
        rows=rows,
        more=h('<li class="more">and {left} more</li>', left=f"{left:,}") if left > 0 else NOTHING,
        actions=_actions(known, group, posted),
    )


def _actions(known: KnownJob, group: CauseGroup, posted: int) -> Html:
    """`posted` of them have a message that no runner has processed yet."""
    if posted == group.count:
        return h('<p class="more">Posted: the next launch takes them up.</p>')
    these = f"these {group.count:,}" if group.count > 1 else "it"
    fields = {"cause": group.id, "mark": items_mark(group.keys)}
    again = button(url("jobs", known.name, "redo"), f"Run {these} again", fields)
    return h(
        '<div class="actions">{again}{skip}</div>',
        again=again,
        skip=skip_form(known.name, f"Skip {these}", fields),
    )

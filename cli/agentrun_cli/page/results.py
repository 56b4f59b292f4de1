"""The results: a table of them, and all of them as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from agentrun.views.exporting import csv_pieces
from agentrun.views.item import ItemView
from agentrun.views.listing import Listing
from agentrun.views.place import open_items
from agentrun.views.results import read_output, result_lines
from agentrun_cli.page.frame import document, note
from agentrun_cli.page.items import PAGE_ITEMS, pages, search_form, value_words
from agentrun_cli.page.markup import NOTHING, Html, cut, h, join, url
from agentrun_cli.page.visit import Visit

_PIECE_BYTES = 1 << 17
_COLUMNS_MOST, _CELL_CHARACTERS, _TEXT_CHARACTERS = 12, 200, 300


def results_page(visit: Visit) -> Response:
    known, odd = visit.job(), list[str]()
    text = visit.query.get("text", "")[:_TEXT_CHARACTERS]
    with visit.place.items(known, warn=odd.append) as listing:
        found = listing.page({"done"}, text, start=visit.number("start"), count=PAGE_ITEMS)
        count = listing.counts["done"]
    downloads = h(
        '<p class="actions"><a class="button" href="{csv}" download>Download CSV</a>'
        '<a class="button" href="{jsonl}" download>Download JSON lines</a></p>',
        csv=url("jobs", known.name, "results.csv"),
        jsonl=url("jobs", known.name, "results.jsonl"),
    )
    body = h(
        "<h1>{title}</h1>{odd}{downloads}{search}{table}{pages}",
        title="1 result" if count == 1 else f"{count:,} results",
        odd=note(" ".join(odd)),
        downloads=downloads if count else NOTHING,
        search=search_form(url("jobs", known.name, "results"), text) if count else NOTHING,
        table=_table(known.name, found.items)
        if found.items
        else h('<p class="card blank">No results {yet}.</p>', yet="match" if text else "yet"),
        pages=pages(found, "jobs", known.name, "results", text=text) if count else NOTHING,
    )
    return document(f"{known.name}: results", body, view=visit.place.view(known), tab="results")


def _table(job: str, views: list[ItemView]) -> Html:
    columns: dict[str, None] = {}
    has_other = False
    # One output at a time: each may be large, and is decoded whenever it is asked for.
    for output in (view.output for view in views):
        if isinstance(output, dict):
            columns.update(dict.fromkeys(output))
        else:
            has_other = True
    names = list(columns)[:_COLUMNS_MOST]
    has_other = has_other or len(names) < len(columns)
    heads = join(h("<th>{name}</th>", name=cut(name, 60)) for name in [*names, *(["output"] if has_other else [])])
    rows = join(_row(job, view, names, has_other=has_other) for view in views)
    return h(
        '<div class="card table scroll" tabindex="0" role="region" aria-label="Results"><table><thead><tr>'
        '<th class="num">#</th>'
        "<th>item</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>",
        heads=heads,
        rows=rows,
    )


def _row(job: str, view: ItemView, names: list[str], *, has_other: bool) -> Html:
    output = view.output
    cells = [_cell(output.get(name, "")) if isinstance(output, dict) else "" for name in names]
    if has_other:
        rest = (
            {name: value for name, value in output.items() if name not in names} if isinstance(output, dict) else output
        )
        cells.append(_cell(rest) if rest != {} else "")
    return h(
        '<tr><td class="num dim">{index}</td><td class="key"><a href="{href}">{key}</a>{edited}</td>{cells}</tr>',
        index=f"{view.index:,}",
        href=url("jobs", job, "items", view.index),
        key=cut(view.key, 120),
        edited=h(' <small class="dim">edited</small>') if view.edited is not None else NOTHING,
        cells=join(h('<td class="cell"><div class="brief">{cell}</div></td>', cell=cell) for cell in cells),
    )


def _cell(value: object) -> str:
    return cut(value_words(value), _CELL_CHARACTERS)


def download_csv(visit: Visit) -> Response:
    return _download(visit, "csv", "text/csv; charset=utf-8", csv_pieces)


def download_jsonl(visit: Visit) -> Response:
    return _download(visit, "jsonl", "application/x-ndjson", result_lines)


def _gathered(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces: each piece is fetched by a thread, which takes longer than to make a line."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _download(visit: Visit, ending: str, media_type: str, lines: Callable[[Listing], Iterator[bytes]]) -> Response:
    known = visit.job()

    def pieces() -> Iterator[bytes]:
        if ending == "jsonl" and (written := read_output(known.store)) is not None:
            yield from written
            return
        # A listing of its own: a slow download must not hold up the other pages.
        with open_items(known) as listing:
            yield from lines(listing)

    made = _gathered(pieces())
    # Before the answer begins: what goes wrong then is said on a page, and not by a file that breaks off.
    first = next(made, b"")
    name = quote(f"{known.name}.{ending}", safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return StreamingResponse(chain([first], made), media_type=media_type, headers=headers)
